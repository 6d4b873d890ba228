"""When a file was made, which no program can set. Python's stat does not tell it on Linux."""

from __future__ import annotations

import ctypes
import os
import struct

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_SIZE, _BORN_AT = 256, 80
_MASK, _TIME = struct.Struct("I"), struct.Struct("qI")
_libc = ctypes.CDLL(None, use_errno=True)


def birth_ns(fd: int) -> int | None:
    """Of the file or folder behind a descriptor; None where the file system does not keep it."""
    return _birth_ns(fd, b"", _AT_EMPTY_PATH)


def birth_ns_of(path: str) -> int | None:
    """Of what is at a path, or of a link there; None also where nothing is."""
    return _birth_ns(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW)


def _birth_ns(fd: int, path: bytes, flags: int) -> int | None:
    call = getattr(_libc, "statx", None)
    found = ctypes.create_string_buffer(_SIZE)
    if call is None or call(fd, path, flags, _STATX_BTIME, found) != 0:
        return None
    if not _MASK.unpack_from(found.raw)[0] & _STATX_BTIME:
        return None
    seconds, nanoseconds = _TIME.unpack_from(found.raw, _BORN_AT)
    return int(seconds * 1_000_000_000 + nanoseconds)
