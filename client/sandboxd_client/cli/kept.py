"""`sandboxctl kept list|diff|accept|drop`: protected files that were moved aside.

They lie in `.sandboxd-kept` of the workspace, one subfolder a run, named by their paths. A command
can change what lies there: look at one (`diff`) before it is put back (`accept`).
"""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff

from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.place import here, resolve
from sandboxd_client.cli.place import workspace as find_workspace
from sandboxd_client.cli.plain_text import one_line
from sandboxd_client.cli.screen import say
from sandboxd_client.cli.status import age
from sandboxd_proto.locations import KEPT_FOLDER

_DIFF_BYTES = 1 << 20
_JUNCTION = 0xA0000003


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
            what = "is empty" if _is_empty(entry.path) else "is the same as what is there now"
            say(f"{one_line(entry.origin)} {what}")
    return 0


def accept(options: Options) -> int:
    folder = _workspace(options)
    chosen = _named_or_all(options, entries(folder), "accept", "what would be put back")
    if not chosen:
        say("nothing was moved aside in this workspace")
    for entry in chosen:
        _check_target(folder, os.path.join(folder, entry.origin), entry)
    for entry in chosen:
        target = os.path.join(folder, entry.origin)
        _check_target(folder, target, entry)  # another one can have brought it back
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(entry.path, target)
        say(f"{one_line(entry.origin)} is back in its place")
        _tidy(folder, entry)
        _drop_copies(folder, entry, target)
    return 0


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
    if os.path.isdir(entry.path) and not _is_link(entry.path):
        shutil.rmtree(entry.path, ignore_errors=True)
    else:
        os.unlink(entry.path)
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
    return resolve(named) if named is not None else find_workspace(None) or here()


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
            raise UsageError(
                f"nothing that is kept is called {given!r}", "see sandboxctl kept list"
            )
        chosen.append(found[-1])
    return chosen


def _check_target(folder: str, target: str, entry: Kept) -> None:
    """In the workspace, and in no place of something else."""
    inside = os.path.realpath(os.path.dirname(target))
    root = os.path.realpath(folder)
    if inside != root and not inside.startswith(root + os.sep):
        raise UsageError(f"{entry.origin} is not in the workspace", "copy it from " + entry.path)
    if os.path.lexists(target):
        raise UsageError(
            f"{one_line(entry.origin)} exists", "look at `kept diff`, and move it away first"
        )


def _tidy(folder: str, entry: Kept) -> None:
    """The subfolder of a run goes with its last entry, the shared folder with the last run."""
    run = os.path.dirname(entry.path)
    if not set(_names(run)) - {".gitignore"}:
        shutil.rmtree(run, ignore_errors=True)
    shared = os.path.join(folder, KEPT_FOLDER)
    if not _is_link(shared) and not set(_names(shared)) - {".gitignore"}:
        shutil.rmtree(shared, ignore_errors=True)


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
