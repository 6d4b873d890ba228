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
        found: set[str] = set()
        for path in paths:
            found.update(_touched(path, points, below=below))
        return frozenset(found)


def _touched(path: str, points: tuple[str, ...], *, below: bool) -> list[str]:
    point, end = _follow(path, points)
    if point is not None:
        return [point]
    folder = end.rstrip("/") + "/"
    return [one for one in points if one.startswith(folder)] if below else []


def _follow(path: str, points: tuple[str, ...]) -> tuple[str | None, str]:
    """(the first mount that the kernel would have to ask, the path without links)."""

    def read_link(step: str) -> str | None:
        point = _point_of(step, points)
        if point is not None:
            raise _OnMountError(point, step)
        try:
            return os.readlink(step)
        except (OSError, ValueError):  # no link, or nothing is there
            return None

    way = Walk(path, read_link)
    try:
        for _ in way:
            pass
    except _OnMountError as met:
        return met.point, met.path
    return None, way.at


class _OnMountError(Exception):
    """The next look of a walk would be one at a mount that may hang."""

    def __init__(self, point: str, path: str) -> None:
        super().__init__(point)
        self.point = point
        self.path = path


def _point_of(path: str, points: tuple[str, ...]) -> str | None:
    return next((point for point in points if within(path, point)), None)


HANGING = HangingMounts()
