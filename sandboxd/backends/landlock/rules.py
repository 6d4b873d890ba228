"""A layout to Landlock rules: what a command may do at which host path.

A Landlock rule always holds for everything below its path, and nothing can be taken out again. So
a place that is stricter than what contains it (a masked file in a readable folder) is left out by
granting its siblings instead, in every folder on the way down to it. Such a folder is "split": its
entries are known, and what appears in it later is out of reach.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
from landlock.plumbing import FSAccess

from sandboxd.linux.landlock import access_read, access_write
from sandboxd.linux.rootfs.etc_data import COPIED
from sandboxd.policy.mounts.mount_plan import Mount, MountKind, MountPlan
from sandboxd.policy.plan import Identity

MAX_RULES = 4096
_LIST = int(FSAccess.READ_DIR)
# Made for the sandbox elsewhere; here the host's own are shown.
_ETC = (*COPIED, "passwd", "group", "nsswitch.conf", "hosts", "hostname", "mtab")


class PathRule(msgspec.Struct, frozen=True):
    """`access` below `path`. With an identity the path must be there, and be exactly that inode."""

    path: str
    access: int
    identity: Identity | None = None

    @property
    def writable(self) -> bool:
        return bool(self.access & FSAccess.WRITE_FILE)


@dataclass(slots=True)
class Rules:
    """`split`: each folder whose entries were granted one by one, and when it last changed."""

    paths: list[PathRule] = field(default_factory=list)
    split: dict[str, int] = field(default_factory=dict)

    def unchanged(self) -> bool:
        """Whether the split folders still have the entries that they had."""
        try:
            return all(os.lstat(path).st_mtime_ns == at for path, at in self.split.items())
        except OSError:
            return False


class TooManyRules(Exception):
    """Leaving out one path would need more rules than is reasonable; the text is the folder."""


Entries = Callable[[str], Iterable[tuple[str, bool]]]


def entries(folder: str) -> list[tuple[str, bool]]:
    """(name, is a symlink) of everything in a folder; nothing where it cannot be listed."""
    try:
        with os.scandir(folder) as found:
            return [(entry.name, entry.is_symlink()) for entry in found]
    except OSError:
        return []


class RuleContext(msgspec.Struct, frozen=True):
    """`own_code`: protected paths that must really be read-only, because they are the daemon's.

    `root`: the command is uid 0, which owns files that no other user may read.
    """

    own_code: frozenset[str] = frozenset()
    root: bool = False
    network: bool = False


def rules(
    layout: MountPlan, abi: int, around: RuleContext, list_entries: Entries = entries
) -> Rules:
    """TooManyRules if the layout cannot be expressed within MAX_RULES."""
    return _Builder(abi, around, list_entries).build(layout)


class _Builder:
    def __init__(self, abi: int, around: RuleContext, list_entries: Entries) -> None:
        self._read = access_read(abi)
        # A device node in a granted folder is not the command's to control.
        self._write = access_write(abi) & ~int(FSAccess.IOCTL_DEV)
        self._around = around
        self._entries = list_entries
        self._rules = Rules()

    def build(self, layout: MountPlan) -> Rules:
        places = [p for p in layout.places if self._rights(p) is not None]
        if layout.at("/etc").kind is MountKind.CURATED:
            places += self._etc({p.path for p in places})
        places.sort(key=lambda place: place.path.split("/"))
        root = layout.at("/")
        below = [place for place in places if place.path != "/"]
        self._walk(root, self._rights(root) or 0, 0, below)
        return self._rules

    def _rights(self, place: Mount) -> int | None:
        """None: the place changes nothing here."""
        match place.kind:
            case MountKind.SYSTEM | MountKind.READ | MountKind.PROC:
                return self._read
            case MountKind.WRITE:
                return self._write
            case MountKind.PROTECTED:
                # In a writable folder nothing can be withheld without closing the folder to new
                # files: protected files are checked after the run instead.
                return self._read if place.path in self._around.own_code else None
            case MountKind.LINK:
                return None
            case MountKind.MASK:
                # Listing the folder of a masked file does not show what is in the file.
                return 0 if place.is_dir else _LIST
            case _:
                return 0

    def _etc(self, known: set[str]) -> Iterator[Mount]:
        names = [*_ETC, "resolv.conf"] if self._around.network else _ETC
        for name in names:
            path = os.path.join("/etc", name)
            if path in known or not os.path.exists(path):
                continue
            if os.path.islink(path):
                path = os.path.realpath(path)
                if path in known or path.startswith("/usr/"):
                    continue
            known.add(path)
            yield Mount(path, MountKind.SYSTEM, os.path.isdir(path))
            if self._around.root:
                yield from (Mount(p, MountKind.MASK, os.path.isdir(p)) for p in _private(path))

    def _walk(self, place: Mount, rights: int, covered: int, below: Sequence[Mount]) -> None:
        """`rights` are those at the place itself, `covered` what rules above it give already."""
        path = place.path
        groups = _by_entry(path, below)
        common = rights
        for other in below:
            common &= self._rights(other) or 0
        self._add(place, common, covered)
        covered |= common
        if common != rights:
            self._split(path, rights, covered, groups)
        for name, inner in groups.items():
            child = os.path.join(path, name)
            if inner[0].path == child:
                self._walk(inner[0], self._rights(inner[0]) or 0, covered, inner[1:])
            else:
                self._walk(Mount(child, place.kind), rights, covered, inner)

    def _split(self, path: str, rights: int, covered: int, groups: dict[str, list[Mount]]) -> None:
        self._rules.split[path] = _changed_at(path)
        for name, is_link in self._entries(path):
            if name not in groups and not is_link:
                self._add(Mount(os.path.join(path, name), MountKind.SYSTEM), rights, covered)

    def _add(self, place: Mount, access: int, covered: int) -> None:
        if place.kind is MountKind.MASK or (not access & ~covered and place.grant is None):
            return
        if len(self._rules.paths) >= MAX_RULES:
            raise TooManyRules(os.path.dirname(place.path))
        identity = place.grant.identity if place.grant else None
        self._rules.paths.append(PathRule(place.path, access, identity))


def _by_entry(path: str, below: Sequence[Mount]) -> dict[str, list[Mount]]:
    """The places below `path` by the entry of it that they are in, the outermost first."""
    start = len(path.rstrip("/")) + 1
    groups: dict[str, list[Mount]] = {}
    for place in below:
        groups.setdefault(place.path[start:].partition("/")[0], []).append(place)
    return groups


def _changed_at(path: str) -> int:
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:
        return 0


def _private(path: str) -> Iterator[str]:
    """What in a folder of the curated /etc is not world-readable (keys beside certificates)."""
    try:
        with os.scandir(path) as found:
            inner = [entry for entry in found if not entry.is_symlink()]
    except OSError:
        return
    for entry in inner:
        if not entry.stat(follow_symlinks=False).st_mode & stat.S_IROTH:
            yield entry.path
        elif entry.is_dir(follow_symlinks=False):
            yield from _private(entry.path)
