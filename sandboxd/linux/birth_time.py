"""When a file was made, which no program can set. Python's stat does not tell it on Linux."""

from __future__ import annotations

import ctypes
import struct

_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_SIZE, _BORN_AT = 256, 80
_MASK, _TIME = struct.Struct("I"), struct.Struct("qI")
_libc = ctypes.CDLL(None, use_errno=True)


def birth_ns(fd: int) -> int | None:
    """Of the file or folder behind a descriptor; None where the file system does not keep it."""
    call = getattr(_libc, "statx", None)
    found = ctypes.create_string_buffer(_SIZE)
    if call is None or call(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, found) != 0:
        return None
    if not _MASK.unpack_from(found.raw)[0] & _STATX_BTIME:
        return None
    seconds, nanoseconds = _TIME.unpack_from(found.raw, _BORN_AT)
    return int(seconds * 1_000_000_000 + nanoseconds)
