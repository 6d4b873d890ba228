"""Notices when the host's mounts change around the paths that a sandbox was made from.

A sandbox has the mounts of the moment in which it was made: what the host unmounts, covers or
remounts later does not reach it. So a sandbox that waits, and a template, is used only while the
mounts at, above and below its paths are the same. Others change all the time: container engines.

The kernel marks mountinfo (POLLPRI) at each change. The lines of mountinfo do not tell a mount
from a later one in its place, because their numbers are used again, so each is paired with its
unique number (listmount). Before Linux 6.8 there are none: after any change nothing is used again.
"""

from __future__ import annotations

import array
import ctypes
import os
import select
from collections.abc import Callable
from functools import cached_property
from weakref import WeakSet

from sandboxd.platform.mountinfo import parse
from sandboxd.policy.mounts.mount_plan import HOST_CONTENT, MountPlan

_LISTMOUNT = 458  # the same number on every architecture
_ROOT = 2**64 - 1
MOST = 8192  # mounts; more are as before Linux 6.8
ATTEMPTS = 3  # to read a table that changes meanwhile
_libc = ctypes.CDLL(None, use_errno=True)

# Lines of mountinfo with unique numbers: 0 where there are none.
Table = set[tuple[int, bytes]]


class _Request(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("spare", ctypes.c_uint32),
        ("mount", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
    )


def list_mounts() -> array.array[int] | None:
    """The unique numbers of all mounts, in mountinfo's order; None where the kernel has none."""
    request = _Request(ctypes.sizeof(_Request), 0, _ROOT, 0)
    found = array.array("Q", bytes(8 * MOST))
    address, _ = found.buffer_info()
    count = _libc.syscall(
        _LISTMOUNT, ctypes.byref(request), ctypes.c_void_p(address), ctypes.c_size_t(MOST), 0
    )
    return found[:count] if 0 < count < MOST else None


def _described(number: int, line: bytes) -> tuple[int, bytes]:
    """Without the fields that say to where mounts propagate."""
    mount, separator, file_system = line.partition(b" - ")
    return number, b" ".join(mount.split(b" ")[:6]) + separator + file_system


class MountWatch:
    """Whether the mounts around the paths of one plan are still those of its making."""

    def __init__(self, mounts: HostMounts, layout: MountPlan) -> None:
        self._mounts = mounts
        self._layout = layout
        self._changed = self._doubtful = self._stirred = False

    def notice(self, points: list[str], *, exact: bool) -> None:
        """`exact`: no mount of the same description was replaced unnoticed."""
        self._stirred = True
        self._changed = self._changed or any(map(self._concerns, points))
        self._doubtful = self._doubtful or not exact

    def _concerns(self, point: str) -> bool:
        return point in self._above or self._layout.shows_host(point)

    @cached_property
    def _above(self) -> set[str]:
        """What is shown of the host, and the folders on the way to it."""
        found = {"/"}
        for place in self._layout.places:
            path = place.path if place.kind in HOST_CONTENT else ""
            while path not in found and path:
                found.add(path)
                path = path[: path.rfind("/")]
        return found

    def changed(self) -> bool:
        """Whether one is known to have changed."""
        self._mounts.look()
        return self._changed

    def stirred(self) -> bool:
        """Whether any mount of the host has changed. One that came and went is in no table."""
        self._mounts.look()
        return self._stirred

    def holds(self) -> bool:
        """Whether none can have changed: then what was made before can be used."""
        return not (self.changed() or self._doubtful)


class HostMounts:
    """`unique`: see `list_mounts`. Only for the event loop's thread."""

    def __init__(
        self, unique: Callable[[], array.array[int] | None] = list_mounts,
        mountinfo: str = "/proc/self/mountinfo",
    ) -> None:  # fmt: skip
        self._unique = unique
        self._watches: WeakSet[MountWatch] = WeakSet()
        self._fd = os.open(mountinfo, os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLPRI)
        self._state = self._read()

    def watch(self, layout: MountPlan) -> MountWatch:
        """From now on: make it before the mounts that it is for."""
        self.look()
        watch = MountWatch(self, layout)
        self._watches.add(watch)
        return watch

    def look(self) -> None:
        """One poll, unless a mount has changed."""
        if not self._poll.poll(0):
            return
        (before, was_exact), self._state = self._state, self._read()
        now, is_exact = self._state
        exact = was_exact and is_exact
        if was_exact != is_exact:
            before, now = ({(0, line) for _, line in table} for table in (before, now))
        gone, new = ({_described(*one) for one in part} for part in (before - now, now - before))
        lines = {line for _, line in gone ^ new}
        points = [one.point for one in parse(os.fsdecode(b"\n".join(lines)))]
        for watch in self._watches:
            watch.notice(points, exact=exact)

    def _read(self) -> tuple[Table, bool]:
        """The table, and whether it is exact: with unique numbers, and read in one piece."""
        lines: list[bytes] = []
        for _ in range(ATTEMPTS):
            self._poll.poll(0)  # a change after this is told at the next look
            numbers, lines = self._unique(), self._lines()
            if numbers is None:
                break
            if len(lines) == len(numbers) and numbers == self._unique():
                return set(zip(numbers, lines, strict=True)), True
        return {(0, line) for line in lines}, False

    def _lines(self) -> list[bytes]:
        os.lseek(self._fd, 0, os.SEEK_SET)
        pieces = []
        while piece := os.read(self._fd, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces).split(b"\n")[:-1]

    def close(self) -> None:
        os.close(self._fd)
