"""`sandboxctl kept list|diff|accept|drop`: protected files that were moved aside.

They lie in `.sandboxd-kept` of the workspace, one subfolder a run, named by their paths. A command
can change what lies there: look at one (`diff`) before it is put back (`accept`).
"""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
import sys
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import unified_diff

from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.hints.root import account
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.plain_text import one_line, quote
from sandboxd_client.cli.running import end_commands
from sandboxd_client.cli.screen import say
from sandboxd_client.cli.status import age
from sandboxd_client.cli.workspace import here, resolve
from sandboxd_client.cli.workspace import workspace as find_workspace
from sandboxd_proto.errors import Conflict, NotFound, PathDenied, Unauthorized
from sandboxd_proto.locations import KEPT_FOLDER

_DIFF_BYTES = 1 << 20
_JUNCTION = 0xA0000003
_MOVED_S = 0.2  # after that a watch has seen what appeared, and a folder's files are due


@dataclass(frozen=True)
class Kept:
    """`origin`: where it appeared, relative to the workspace."""

    id: str
    path: str
    origin: str
    made: float

    def plain(self) -> dict[str, object]:
        return {"id": self.id, "path": self.path, "origin": self.origin}


def list(options: Options) -> int:
    found = entries(_workspace(options))
    if options.has("--json"):
        print_json({"kept": [entry.plain() for entry in found]})
        return 0
    if found:
        newest = {entry.origin: entry for entry in found}
        width = max(len(entry.id) for entry in found)
        print(f"{'NAME':<{width}}  {'AGE':<5} APPEARED AS")
        for entry in newest.values():
            passed = age(max(0.0, time.time() - entry.made) * 1000)
            older = sum(other.origin == entry.origin for other in found) - 1
            more = f"  (and {older} older)" if older else ""
            print(f"{entry.id:<{width}}  {passed:<5} {one_line(entry.origin)}{more}")
    else:
        say("nothing was moved aside in this workspace")
    return 0


def diff(options: Options) -> int:
    folder = _workspace(options)
    chosen = _chosen(folder, options.operands) if options.operands else entries(folder)
    if not chosen:
        say("nothing was moved aside in this workspace")
    for entry in chosen:
        shown = False
        for line in _difference(os.path.join(folder, entry.origin), entry.path, entry.origin):
            shown = True
            print(line)
        if not shown:
            say(f"{one_line(entry.origin)} {_state(folder, entry)}")
    return 0


def _state(folder: str, entry: Kept) -> str:
    """Of one that shows no difference line by line."""
    if _is_empty(entry.path):
        return "is empty"
    same = _is_same(os.path.join(folder, entry.origin), entry.path)
    return "is the same as what is there now" if same else "differs, and is not text"


def accept(options: Options) -> int:
    folder = _workspace(options)
    chosen = _named_or_all(options, entries(folder), "accept", "what would be put back")
    if not chosen:
        say("nothing was moved aside in this workspace")
        return 0
    if running := end_commands(options, folder):
        raise Conflict(
            "nothing is put back while something runs here: it would be moved aside again",
            remedy=f"end it first: {'; '.join(running)}",
        )
    chosen = [entry for entry in chosen if not _is_there(folder, entry)]
    for entry in chosen:
        _check_target(folder, os.path.join(folder, entry.origin), entry)
    before = {entry.path for entry in entries(folder)}
    put: deque[Kept] = deque()
    try:
        for entry in chosen:
            target = os.path.join(folder, entry.origin)
            inside = _check_target(folder, target, entry)  # another one can have brought it back
            with _undisturbed(entry, "put back"):
                put_back(folder, entry.path, os.path.join(inside, os.path.basename(target)))
            _tidy(folder, entry)
            put.append(entry)
    finally:
        _confirm(folder, put, before)
    return 0


def _confirm(folder: str, put: Collection[Kept], before: Collection[str]) -> None:
    """What another user or another daemon runs here moves it aside again, a moment later."""
    time.sleep(_MOVED_S if put else 0)
    again = {entry.origin for entry in entries(folder) if entry.path not in before}
    for entry in put:
        target = os.path.join(folder, entry.origin)
        if entry.origin in again or not os.path.lexists(target):
            raise Conflict(
                f"{one_line(entry.origin)} was moved aside again: something runs here that this "
                "daemon does not list",
                remedy="end what another user or another daemon runs in this folder, then try "
                "again",
            )
        say(f"{one_line(entry.origin)} is back in its place")
        _drop_copies(folder, entry, target)


def _is_there(folder: str, entry: Kept) -> bool:
    """Whether the same is in its place: then it is deleted here."""
    target = os.path.join(folder, entry.origin)
    if not os.path.lexists(target) or not _is_same(target, entry.path):
        return False
    _delete(folder, entry)
    say(f"{one_line(entry.origin)} is there already")
    return True


def drop(options: Options) -> int:
    """A path stands for all that appeared there."""
    folder = _workspace(options)
    known = entries(folder)
    named = _named_or_all(options, known, "drop", "what would be deleted")
    paths = {entry.origin for entry in named if entry.origin.rstrip("/") in options.operands}
    everything = options.has("--all")
    chosen = [one for one in known if everything or one in named or one.origin in paths]
    for entry in chosen:
        _delete(folder, entry)
    say(f"deleted {len(chosen)}" if known else "nothing was moved aside in this workspace")
    return 0


def _named_or_all(options: Options, known: Sequence[Kept], what: str, shown: str) -> Sequence[Kept]:
    """With --all of each path the newest one."""
    if options.has("--all") and options.operands:
        raise UsageError("--all stands for every name", "give names, or --all alone")
    if options.operands:
        return _chosen(_workspace(options), options.operands)
    if known and not options.has("--all"):
        raise UsageError(
            f"kept {what} needs a NAME, or --all", f"sandboxctl kept list shows {shown}"
        )
    return [*{entry.origin: entry for entry in known}.values()]


def _is_empty(path: str) -> bool:
    if _is_link(path):
        return False
    return not os.listdir(path) if os.path.isdir(path) else os.path.getsize(path) == 0


def _delete(folder: str, entry: Kept) -> None:
    with _undisturbed(entry, "deleted"), _reached(folder, entry.path) as (name, at):
        try:
            os.unlink(name, dir_fd=at)
        except (IsADirectoryError, PermissionError):  # the second on other systems than Linux
            shutil.rmtree(name, ignore_errors=True, dir_fd=at)
    _tidy(folder, entry)


def _drop_copies(folder: str, accepted: Kept, now: str) -> None:
    """Older ones of the same path that hold the same."""
    for entry in entries(folder):
        if entry.origin == accepted.origin and _is_same(now, entry.path):
            _delete(folder, entry)


def _is_same(one: str, other: str) -> bool:
    kinds = [stat.S_IFMT(os.lstat(path).st_mode) for path in (one, other)]
    if kinds[0] != kinds[1]:
        return False
    if stat.S_ISDIR(kinds[0]):
        names = os.listdir(one)
        return sorted(names) == sorted(os.listdir(other)) and all(
            _is_same(os.path.join(one, name), os.path.join(other, name)) for name in names
        )
    if stat.S_ISLNK(kinds[0]):
        return os.readlink(one) == os.readlink(other)
    return stat.S_ISREG(kinds[0]) and filecmp.cmp(one, other, shallow=False)


def entries(folder: str) -> Sequence[Kept]:
    found = [entry for run in _runs(folder) for entry in _of_run(run)]
    return sorted(found, key=lambda entry: entry.made)


def known(options: Options) -> dict[str, str]:
    """For completion: where it appeared. What a shell would evaluate or divide is named by its ID
    alone: the command chose the path."""
    paths = {entry.origin.rstrip("/"): entry.id for entry in entries(_workspace(options))}
    return {path if path == quote(path) else id: id for path, id in paths.items()}


def _runs(folder: str) -> Iterator[str]:
    shared = os.path.join(folder, KEPT_FOLDER)
    for parent, wanted in ((shared, ""), (folder, f"{KEPT_FOLDER}-")):
        if _is_link(parent):
            continue
        for name in _names(parent):
            path = os.path.join(parent, name)
            if name.startswith(wanted) and os.path.isdir(path) and not _is_link(path):
                yield path


def _of_run(run: str) -> Iterator[Kept]:
    token = os.path.basename(run).removeprefix(f"{KEPT_FOLDER}-")
    for name in _names(run):
        number, dash, encoded = name.partition("-")
        if not (dash and number.isdigit()):
            continue
        path = os.path.join(run, name)
        origin = encoded.replace("%2F", "/").replace("%2E", ".").replace("%25", "%")
        yield Kept(f"{token[:4]}-{number}", path, origin, os.lstat(path).st_ctime)


def _names(folder: str) -> Sequence[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _is_link(path: str) -> bool:
    """A junction of Windows leads elsewhere as a link does."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) or getattr(found, "st_reparse_tag", 0) == _JUNCTION


def _workspace(options: Options) -> str:
    """A named one may be any folder that was writable: a home folder too."""
    named = options.one("--workspace")
    found = os.path.realpath(
        resolve(named) if named is not None else find_workspace(None) or here()
    )
    if not os.path.isdir(found):
        raise NotFound(f"--workspace: {one_line(found)} is not a folder", remedy="name one that is")
    kept = os.path.join(found, KEPT_FOLDER)
    if os.path.isdir(kept) and not os.access(kept, os.R_OK | os.X_OK):
        raise Unauthorized(
            f"{one_line(kept)} belongs to {account(os.stat(kept).st_uid)}, and you cannot read it",
            remedy="use sudo, or do this as that user",
        )
    return found


def _chosen(folder: str, names: Sequence[str]) -> Sequence[Kept]:
    known = entries(folder)
    chosen = []
    for given in names:
        name = given.replace(os.sep, "/")
        found = [
            entry
            for entry in known
            if name in (entry.id, entry.origin.rstrip("/"), entry.path.replace(os.sep, "/"))
        ]
        if not found:
            raise NotFound(
                f"nothing that is kept is called {given!r}", remedy="see sandboxctl kept list"
            )
        chosen.append(found[-1])
    return chosen


def _check_target(folder: str, target: str, entry: Kept) -> str:
    """In the workspace, and in no place of something else: the folder that it comes to."""
    inside = os.path.realpath(os.path.dirname(target))
    if inside != folder and not inside.startswith(folder + os.sep):
        raise PathDenied(
            f"{one_line(entry.origin)} is not in the workspace",
            remedy=f"copy it from {one_line(entry.path)}",
        )
    if os.path.lexists(target):
        raise Conflict(
            f"{one_line(entry.origin)} exists",
            remedy="look at `kept diff`; to have what was moved aside, move or remove yours first, "
            f"then `kept accept {quote(entry.id)}`; `kept drop {quote(entry.id)}` deletes what was "
            "moved aside, and leaves yours",
        )
    return inside


def put_back(folder: str, path: str, target: str) -> None:
    """Rename `path` to `target`, both in `folder`. OSError where a link is on the way."""
    with _reached(folder, path) as (name, at), _reached(folder, target, make=True) as (new, into):
        os.rename(name, new, src_dir_fd=at, dst_dir_fd=into)


@contextmanager
def _reached(folder: str, path: str, *, make: bool = False) -> Iterator[tuple[str, int | None]]:
    """A path in `folder` as a name, and the descriptor of where it is. A running command may put a
    link on the way meanwhile: OSError. On Windows the path itself."""
    parent, name = os.path.split(path)
    if sys.platform == "win32":
        if make:
            os.makedirs(parent, exist_ok=True)
        yield path, None
        return
    opened = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for part in os.path.relpath(parent, folder).split(os.sep):
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=opened[-1])
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            opened.append(os.open(part, flags, dir_fd=opened[-1]))
        yield name, opened[-1]
    finally:
        for fd in opened:
            os.close(fd)


@contextmanager
def _undisturbed(entry: Kept, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Conflict(
            f"{one_line(entry.origin)} cannot be {done}: {error.strerror}",
            remedy="a command may be changing the folder: end it (sandboxctl ps, kill), and try "
            "again",
        ) from None


def _tidy(folder: str, entry: Kept) -> None:
    """The subfolder of a run goes with its last entry, the shared folder with the last run."""
    for path in (os.path.dirname(entry.path), os.path.join(folder, KEPT_FOLDER)):
        if set(_names(path)) <= {".gitignore"}:
            with (
                suppress(OSError),
                _reached(folder, os.path.join(path, ".gitignore")) as (name, at),
            ):
                os.unlink(name, dir_fd=at)
            with suppress(OSError), _reached(folder, path) as (name, at):
                os.rmdir(name, dir_fd=at)


def _difference(now: str, kept: str, name: str) -> Iterator[str]:
    if os.path.isdir(kept) and not _is_link(kept):
        for base, _, files in os.walk(kept):
            for file in sorted(files):
                below = os.path.relpath(os.path.join(base, file), kept)
                yield from _difference(
                    os.path.join(now, below), os.path.join(kept, below), os.path.join(name, below)
                )
        return
    shown = one_line(name)
    lines = unified_diff(_lines(now), _lines(kept), f"now/{shown}", f"kept/{shown}", lineterm="")
    yield from (one_line(line) for line in lines)


def _lines(path: str) -> Sequence[str]:
    try:
        if os.path.islink(path):
            return [f"(a link to {os.readlink(path)})"]
        if not os.path.isfile(path):
            return []
        with open(path, "rb") as file:
            data = file.read(_DIFF_BYTES)
    except OSError as error:
        return [f"(cannot be read: {error.strerror})"]
    return ["(not text)"] if b"\0" in data else data.decode(errors="replace").splitlines()
