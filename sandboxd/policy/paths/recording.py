"""What planning saw of the host's files, and the facts that represent it.

A folder's ctime represents the names in it: only the kernel sets it, and it changes with every
entry that is made, removed or replaced. Timestamps have the resolution of the kernel's clock tick,
so a very recent one proves nothing.
"""

from __future__ import annotations

import errno
import math
import os
import posixpath
import stat as modes
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from sandboxd.platform.current import files
from sandboxd.policy.paths.symlink_walk import Walk

_COARSE_NS = 50_000_000
_WHOLE_NS = 2_100_000_000  # file systems that count in seconds, or in two

T = TypeVar("T")
Name = tuple[int, ...] | None
Stamp = tuple[int, int, int]
Listing = frozenset[tuple[str, bool, bool]]
# Whether an entry counts: (name, is a folder). A module's function, so that it can be compared.
Filter = Callable[[str, bool], bool]
# What counts of a file's content, by its path. A module's function too.
Extract = Callable[[str], Hashable]


def name_of(path: str) -> Name:
    """What a name leads to; None if to nothing.

    Who may pass matters for folders. What is in a file or folder does not.
    """
    found = status_of(path)
    return None if found is None else name_from(found)


def status_of(path: str) -> os.stat_result | None:
    """Of the name itself, which may be a symlink; None if there is none."""
    try:
        return files.lstat(path)
    except (OSError, ValueError):
        return None


def name_from(found: os.stat_result) -> tuple[int, ...]:
    if modes.S_ISDIR(found.st_mode):
        return found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid
    kind = modes.S_IFMT(found.st_mode)
    return found.st_dev, found.st_ino, kind, found.st_ctime_ns if kind == modes.S_IFLNK else 0


def stamp_from(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_ctime_ns


def stamp_of(path: str) -> Stamp | None:
    try:
        found = files.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


MOST_LISTED = 100_000  # entries of one folder that a plan rests on
MOST_SEEN = 2_000_000


def is_past(stamp: Stamp, now: int) -> bool:
    coarse = _COARSE_NS if stamp[2] % 1_000_000 else _WHOLE_NS
    return stamp[2] < now - coarse


def select_entries(path: str, wanted: Filter) -> list[files.DirEntry]:
    with files.scandir(path) as found:
        seen = _bounded(path, found, MOST_SEEN)
        wanted_ones = (e for e in seen if wanted(e.name, e.is_dir(follow_symlinks=False)))
        return list(_bounded(path, wanted_ones, MOST_LISTED))


def list_entries(path: str) -> list[files.DirEntry]:
    with files.scandir(path) as found:
        return list(_bounded(path, found, MOST_LISTED))


def _bounded(path: str, found: Iterable[files.DirEntry], most: int) -> Iterator[files.DirEntry]:
    """OSError with E2BIG if there are more: a file system's server can list for ever."""
    for count, entry in enumerate(found):
        if count >= most:
            raise OSError(errno.E2BIG, "too many entries", path)
        yield entry


def listing_of(listed: list[files.DirEntry]) -> Listing:
    return shared(
        frozenset((e.name, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in listed)
    )


_known: WeakValueDictionary[int, frozenset[Any]] = WeakValueDictionary()


def shared(seen: frozenset[T]) -> frozenset[T]:
    """One for all plans that saw the same: each looks for secrets in people's home folders."""
    known = _known.setdefault(hash(seen), seen)
    return known if known == seen else seen


class Fact:
    """What a plan rests on without comparing it: whoever finds that it changed says so."""

    __slots__ = ("holds",)

    def __init__(self) -> None:
        self.holds = True


@dataclass(slots=True)
class Recording:
    """`names` by canonical parent, files that were read, folders that were listed."""

    names: dict[str, Name] = field(default_factory=dict)
    contents: dict[str, Stamp] = field(default_factory=dict)
    listings: dict[str, Listing] = field(default_factory=dict)
    selections: dict[tuple[str, Filter], Listing] = field(default_factory=dict)
    extracts: dict[tuple[str, Extract], Hashable] = field(default_factory=dict)
    fleeting: bool = False  # right now, but not to be compared later
    torn: bool = False  # something changed between two looks
    until: float = math.inf  # of the monotonic clock
    facts: list[Fact] = field(default_factory=list)
    _ends: dict[str, str] = field(default_factory=dict)  # where ways ended that were walked

    def walk(self, path: str) -> str:
        """Notes every name on the way, through symlinks; answers where the way ended."""
        if path not in self._ends:
            way = Walk(path, self._read_link)
            for _ in way:
                pass
            self._ends[path] = way.at
        return self._ends[path]

    def _read_link(self, step: str) -> str | None:
        name = self.note(step)
        if name is None or not modes.S_ISLNK(name[2]):
            return None
        try:
            return files.readlink(step)
        except OSError:  # replaced meanwhile
            self.torn = True
            return None

    def note(self, step: str) -> Name:
        if step not in self.names:
            self.names[step] = name_of(step)
        return self.names[step]

    def beside(self, path: str, *found: os.stat_result | None) -> None:
        """The name itself, at the end of a way that may go through symlinks. `found`: what a look
        at it has just found. A plan that saw two things by one name is not kept."""
        folder, name = posixpath.split(path)
        step = f"{self.walk(folder).rstrip('/')}/{name}"
        noted = self.note(path if step == path else step)  # the same text is kept once
        for one in found:
            if noted != (None if one is None else name_from(one)):
                self.torn = True

    def content(self, path: str, found: os.stat_result) -> None:
        """What is in `path` matters. `found`: looked at before it was read."""
        stamp = stamp_from(found)
        self.fleeting = self.fleeting or not is_past(stamp, time.time_ns())
        self.contents[self.walk(path)] = stamp
