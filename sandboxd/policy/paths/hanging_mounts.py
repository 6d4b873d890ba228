"""Mounts whose server may never answer (NFS, FUSE and their kind), and which paths lead there.

A call on such a path can wait for ever, so the event loop makes none before a thread has tried it.
Symlinks are followed by hand: a look at the target would be the call that hangs.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Iterable

from sandboxd.platform.current import files
from sandboxd.platform.mountinfo import parse
from sandboxd.policy.paths.symlink_walk import Walk
from sandboxd.policy.paths.within import within

_POLLPRI = 2
MOUNTINFO = "/proc/self/mountinfo"
_KINDS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "afs", "coda", "ncpfs",
     "lustre", "gfs2", "ocfs2", "orangefs", "pvfs2", "beegfs", "glusterfs", "gpfs", "davfs",
     "vboxsf", "vmhgfs", "prl_fs", "autofs", "ecryptfs"}
)  # fmt: skip


def can_hang(kind: str) -> bool:
    """Whether a program or another machine answers for a file system of this type."""
    return kind in _KINDS or (kind.startswith("fuse") and kind != "fusectl")


def hanging_points(mountinfo: str) -> tuple[str, ...]:
    """The mount points, except those that another mount has hidden again."""
    top = {entry.point: can_hang(entry.kind) for entry in parse(mountinfo)}
    return tuple(sorted(point for point, hangs in top.items() if hangs))


class HangingMounts:
    """Read again when the kernel says that a mount has changed: one poll at each question."""

    def __init__(self) -> None:
        self._points: tuple[str, ...] = ()
        self._reads = 0
        self._fd = -1
        self._lock = threading.Lock()
        self._poll = select.poll() if hasattr(select, "poll") else None

    def points(self) -> tuple[str, ...]:
        with self._lock:  # of two threads that poll at once only one is told about a change
            return self._current()

    def changes(self) -> int:
        """Grows when a mount changes."""
        self.points()
        return self._reads

    def _current(self) -> tuple[str, ...]:
        if sys.platform == "win32" or self._poll is None:
            return ()
        if self._fd < 0:
            try:
                self._fd = os.open(MOUNTINFO, os.O_RDONLY | files.QUIETLY)
            except OSError:  # no /proc: a platform without mountinfo
                self._poll = None
                return ()
            self._poll.register(self._fd, _POLLPRI)
            self._points = self._read()
        elif self._poll.poll(0):
            self._points = self._read()
        return self._points

    def _read(self) -> tuple[str, ...]:
        self._reads += 1
        os.lseek(self._fd, 0, os.SEEK_SET)
        pieces = []
        while piece := os.read(self._fd, 1 << 16):
            pieces.append(piece)
        return hanging_points(os.fsdecode(b"".join(pieces)))

    def reached(self, paths: Iterable[str], *, below: bool = False) -> frozenset[str]:
        """The mount points that a look at one of the paths touches. `below`: also those that lie
        in the folders that the paths name."""
        points = self.points()
        if not points:
            return frozenset()
        ways = _Ways(points)
        found: set[str] = set()
        for path in paths:
            found.update(ways.touched(path, below=below))
        return frozenset(found)


class _Ways:
    """Where paths lead. What several paths share is looked at once: desktops have a FUSE mount for
    as long as somebody is logged in, and each request asks about dozens of paths."""

    def __init__(self, points: tuple[str, ...]) -> None:
        self._points = points
        self._known: dict[str, tuple[str | None, str]] = {"": (None, "/")}

    def touched(self, path: str, *, below: bool) -> list[str]:
        point, end = self._follow(path)
        if point is not None:
            return [point]
        folder = end.rstrip("/") + "/"
        return [one for one in self._points if one.startswith(folder)] if below else []

    def _follow(self, path: str) -> tuple[str | None, str]:
        """(the first mount that the kernel would have to ask, the path without links)."""
        names, head = [], path
        while head not in self._known:
            head, _, name = head.rpartition("/")
            names.append(name)
        point, end = self._known[head]
        for name in reversed(names):
            if point is None:
                point, end = self._walk(name, end)
            head = f"{head}/{name}"
            self._known[head] = point, end
        return point, end

    def _walk(self, name: str, folder: str) -> tuple[str | None, str]:
        way = Walk(name, self._read_link, start=folder)
        try:
            for _ in way:
                pass
        except _OnMountError as met:
            return met.point, met.path
        return None, way.at

    def _read_link(self, step: str) -> str | None:
        point = next((point for point in self._points if within(step, point)), None)
        if point is not None:
            raise _OnMountError(point, step)
        try:
            return os.readlink(step)
        except (OSError, ValueError):  # no link, or nothing is there
            return None


class _OnMountError(Exception):
    """The next look of a walk would be one at a mount that may hang."""

    def __init__(self, point: str, path: str) -> None:
        super().__init__(point)
        self.point = point
        self.path = path


HANGING = HangingMounts()
