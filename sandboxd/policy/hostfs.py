"""Every look of the policy at the host's files, so that a plan can say what it rests on.

Working a plan out takes hundreds of system calls, and the next request wants the same plan. While
`noting` is in force each look is written down; a `Basis` then answers with a few calls whether all
of them would still come out the same.

A folder's ctime stands for the names in it: nothing but the kernel sets it, and every entry that is
made, removed or replaced changes it. Timestamps are as coarse as the kernel's clock tick, so one
that is only just past proves nothing.
"""

from __future__ import annotations

import math
import os
import stat as modes
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

SYSTEM_S = 1.0
_SYSTEM = ("/etc/", "/var/", "/run/", "/usr/")
_MAX_LINKS = 40  # the kernel's own limit
_COARSE_NS = 50_000_000
_WHOLE_NS = 2_100_000_000  # file systems that count in seconds, or in two
_QUIETLY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)

Name = tuple[int, ...] | None
Stamp = tuple[int, int, int]
Listing = frozenset[tuple[str, bool, bool]]


def _name_of(path: str) -> Name:
    """What a name leads to; None if to nothing.

    Who may pass matters for folders. What is in a file or folder does not.
    """
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return _name(found)


def _name(found: os.stat_result) -> Name:
    if modes.S_ISDIR(found.st_mode):
        return found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid
    kind = modes.S_IFMT(found.st_mode)
    return found.st_dev, found.st_ino, kind, found.st_ctime_ns if kind == modes.S_IFLNK else 0


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _stamp_of(path: str) -> Stamp | None:
    try:
        return _stamp(os.lstat(path))
    except OSError:
        return None


def _is_past(stamp: Stamp, now: int) -> bool:
    coarse = _COARSE_NS if stamp[2] % 1_000_000 else _WHOLE_NS
    return stamp[2] < now - coarse


@dataclass(slots=True)
class Notes:
    """`names` by canonical parent, files that were read, folders that were listed."""

    names: dict[str, Name] = field(default_factory=dict)
    contents: dict[str, Stamp] = field(default_factory=dict)
    listings: dict[str, Listing] = field(default_factory=dict)
    fleeting: bool = False

    def walk(self, path: str) -> str:
        """Notes every name on the way, through symlinks; answers where the way ended."""
        at = "/"
        pending = path.split("/")[::-1]
        links = 0
        while pending:
            part = pending.pop()
            if part in ("", "."):
                continue
            if part == "..":
                at = os.path.dirname(at)
                continue
            step = f"{at if at != '/' else ''}/{part}"
            name = self.note(step)
            if name is not None and modes.S_ISLNK(name[2]) and links < _MAX_LINKS:
                links += 1
                try:
                    target = os.readlink(step)
                except OSError:  # replaced meanwhile
                    self.fleeting = True
                    at = step
                    continue
                at = "/" if target.startswith("/") else at
                pending += target.split("/")[::-1]
            else:
                at = step
        return at

    def note(self, step: str) -> Name:
        if step not in self.names:
            self.names[step] = _name_of(step)
        return self.names[step]

    def beside(self, path: str) -> None:
        """The name itself, at the end of a way that may go through symlinks."""
        folder, name = os.path.split(path)
        self.note(f"{self.walk(folder).rstrip('/')}/{name}")

    def content(self, path: str, found: os.stat_result) -> None:
        """What is in `path` matters. `found`: looked at before it was read."""
        stamp = _stamp(found)
        self.fleeting = self.fleeting or not _is_past(stamp, time.time_ns())
        self.contents[self.walk(path)] = stamp


_notes: ContextVar[Notes | None] = ContextVar("looks at the host's files", default=None)


@contextmanager
def noting() -> Iterator[Notes]:
    notes = Notes()
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def lstat(path: str) -> os.stat_result:
    notes = _notes.get()
    if notes is not None:
        notes.beside(path)
    return os.lstat(path)


def stat(path: str) -> os.stat_result:
    """Who owns it counts, and for a file only its own ctime tells that this changed."""
    _walked(path)
    found = os.stat(path)
    notes = _notes.get()
    if notes is not None and not modes.S_ISDIR(found.st_mode):
        notes.content(path, found)
    return found


def realpath(path: str, *, strict: bool = False) -> str:
    _walked(path)
    return os.path.realpath(path, strict=strict)


def exists(path: str) -> bool:
    _walked(path)
    return os.path.exists(path)


def isdir(path: str) -> bool:
    _walked(path)
    return os.path.isdir(path)


def isfile(path: str) -> bool:
    _walked(path)
    return os.path.isfile(path)


def lexists(path: str) -> bool:
    notes = _notes.get()
    if notes is not None:
        notes.beside(path)
    return os.path.lexists(path)


def islink(path: str) -> bool:
    notes = _notes.get()
    if notes is not None:
        notes.beside(path)
    return os.path.islink(path)


def readlink(path: str) -> str:
    notes = _notes.get()
    if notes is not None:
        notes.beside(path)
    return os.readlink(path)


def access(path: str, mode: int) -> bool:
    """Access lists count too, and only the ctime tells that they changed."""
    notes = _notes.get()
    if notes is not None:
        notes.walk(path)
        try:
            notes.content(path, os.stat(path))
        except OSError:
            return False
    return os.access(path, mode)


def listdir(path: str) -> list[str]:
    return [entry.name for entry in entries(path)]


def entries(path: str) -> list[os.DirEntry[str]]:
    """Of the entries only names and kinds count for the basis."""
    notes = _notes.get()
    place = notes.walk(path) if notes is not None else path
    with os.scandir(path) as found:
        listed = list(found)
    if notes is not None:
        notes.listings[place] = _listing(listed)
    return listed


def _listing(listed: list[os.DirEntry[str]]) -> Listing:
    return frozenset(
        (e.name, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in listed
    )


def read(path: str, most: int) -> bytes:
    """The start of a regular file; OSError for anything else. Does not block on a pipe."""
    notes = _notes.get()
    if notes is not None:
        notes.walk(path)
    fd = os.open(path, os.O_RDONLY | _QUIETLY)
    try:
        found = os.fstat(fd)
        if not modes.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a regular file")
        if notes is not None:
            notes.content(path, found)
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(fd)


def rests_on(path: str) -> None:
    """For what is read by somebody else's code."""
    notes = _notes.get()
    if notes is not None:
        try:
            notes.content(path, os.stat(path))
        except OSError:
            notes.walk(path)


def _walked(path: str) -> None:
    notes = _notes.get()
    if notes is not None:
        notes.walk(path)


@dataclass(slots=True)
class _Folder:
    """The names seen in one folder, and its listing. Once they were compared, its stamp stands for
    them. Folders are not among them: something can be mounted on one, or its mode changed, and the
    ctime of the folder above stays as it was."""

    path: str
    names: list[tuple[str, Name]] = field(default_factory=list)
    listing: Listing | None = None
    stamp: Stamp | None = None

    def holds(self) -> bool:
        if len(self.names) < 2 and self.listing is None:
            return self._compared()
        found = _stamp_of(self.path)  # first: what changes from here on changes it
        if found is not None and found == self.stamp:
            return True
        if not self._compared():
            return False
        past = found is not None and _is_past(found, time.time_ns())
        self.stamp = found if past else None
        return True

    def _compared(self) -> bool:
        return all(_name_of(path) == name for path, name in self.names) and (
            self.listing is None or self.listing == self._listed()
        )

    def _listed(self) -> Listing | None:
        try:
            with os.scandir(self.path) as found:
                return _listing(list(found))
        except OSError:
            return None


class _Part:
    def __init__(self, notes: Notes) -> None:
        folders: dict[str, _Folder] = {}
        self._folders_seen: list[tuple[str, Name]] = []
        for path, name in notes.names.items():
            above = os.path.dirname(path)
            if name is not None and modes.S_ISDIR(name[2]):
                self._folders_seen.append((path, name))
            # Below something that is missing everything is, and stays so with it.
            elif notes.names.get(above, ()) is not None:
                folders.setdefault(above, _Folder(above)).names.append((path, name))
        for path, listing in notes.listings.items():
            folders.setdefault(path, _Folder(path)).listing = listing
        self._folders = list(folders.values())
        self._contents = list(notes.contents.items())

    def holds(self) -> bool:
        return (
            all(_stamp_of(path) == stamp for path, stamp in self._contents)
            and all(_name_of(path) == name for path, name in self._folders_seen)
            and all(folder.holds() for folder in self._folders)
        )


class Basis:
    """What was noted, to be compared with what is there now.

    System folders are compared once in SYSTEM_S: no command can write there, and what appears there
    shows at once in every sandbox that is up, however often this looks. `own`: not among them.
    """

    def __init__(self, notes: Notes, own: Iterable[str]) -> None:
        mine = tuple(path.rstrip("/") + "/" for path in own)
        quick, slow = Notes(), Notes()
        for path, name in notes.names.items():
            (slow if _is_system(path, mine) else quick).names[path] = name
        for path, stamp in notes.contents.items():
            (slow if _is_system(path, mine) else quick).contents[path] = stamp
        for path, listing in notes.listings.items():
            (slow if _is_system(path, mine) else quick).listings[path] = listing
        self._quick, self._slow = _Part(quick), _Part(slow)
        self._slow_from = -math.inf

    def holds(self) -> bool:
        if not self._quick.holds():
            return False
        now = time.monotonic()
        if now - self._slow_from < SYSTEM_S:
            return True
        self._slow_from = now
        return self._slow.holds()


def _is_system(path: str, own: tuple[str, ...]) -> bool:
    return path.startswith(_SYSTEM) and not f"{path}/".startswith(own)
