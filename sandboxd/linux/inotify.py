"""inotify, and a timer as its fallback: both are one readable descriptor.

A user has few inotify instances (128 by default), and editors use many of them. A watch that gets
none checks again at every tick of a timer.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import os
import struct
import termios
from collections.abc import Iterator

import msgspec

IN_MODIFY = 0x02
IN_ATTRIB = 0x04
IN_CLOSE_WRITE = 0x08
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x01000000
_IN_DONT_FOLLOW = 0x02000000
_IN_MASK_ADD = 0x20000000

READ_BYTES = 16384  # at most 1024 events
_TICK_NS = 50_000_000
_CLOCK_MONOTONIC = 1
_libc = ctypes.CDLL(None, use_errno=True)
_HEAD = struct.Struct("iIII")


class InotifyEvent(msgspec.Struct, frozen=True):
    watch: int
    mask: int
    name: str


class Inotify:
    def __init__(self) -> None:
        self._fd: int = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        return self._fd

    def add(self, folder: int, mask: int) -> int:
        """Watch the folder behind an open descriptor; the same folder gives the same number."""
        path = f"/proc/self/fd/{folder}".encode()
        return _checked(_libc.inotify_add_watch(self._fd, path, mask | _IN_ONLYDIR | _IN_MASK_ADD))

    def add_path(self, path: str, mask: int) -> int:
        """Watch a folder by its name, which may be no symlink."""
        flags = mask | _IN_ONLYDIR | _IN_DONT_FOLLOW
        return _checked(_libc.inotify_add_watch(self._fd, os.fsencode(path), flags))

    def remove(self, watch: int) -> None:
        _checked(_libc.inotify_rm_watch(self._fd, watch))

    def read(self) -> Iterator[InotifyEvent]:
        """Some of the pending events, so that a caller's work is bounded. Never blocks."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        yield from _events(data)

    def backlog(self) -> int:
        """The pending bytes."""
        count = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, count)
        return count[0]

    def close(self) -> None:
        os.close(self._fd)


class Ticker:
    """A descriptor that becomes readable periodically."""

    def __init__(self, tick_ns: int = _TICK_NS) -> None:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._fd: int = _checked(_libc.timerfd_create(_CLOCK_MONOTONIC, flags))
        self.set(tick_ns)

    def set(self, tick_ns: int) -> None:
        """0: no more ticks."""
        spec = struct.pack("4q", 0, tick_ns, 0, tick_ns)
        _checked(_libc.timerfd_settime(self._fd, 0, spec, None))

    def fileno(self) -> int:
        return self._fd

    def rest(self) -> bool:
        """Not readable until the next tick. Whether it was."""
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._fd, 8))
        return False

    def close(self) -> None:
        os.close(self._fd)


def _events(data: bytes) -> Iterator[InotifyEvent]:
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
        at += length
        yield InotifyEvent(watch, mask, name)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
