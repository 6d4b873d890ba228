"""Reading files whose path others control: never blocks on a pipe, a device or a lease.

A path is looked at through an O_PATH descriptor first. That opens nothing: a device driver is not
asked, and a FIFO without a writer does not block. Only a regular file is then opened for reading,
through the same descriptor, so that a file that was swapped in meanwhile does not count.
"""

from __future__ import annotations

import os
import stat
import sys

_QUIETLY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
# Windows would drop carriage returns and end the file at the first Ctrl-Z.
_QUIETLY |= getattr(os, "O_BINARY", 0)


def open_regular(path: str, *, dir_fd: int | None = None, follow: bool = True) -> int:
    """A nonblocking descriptor for reading; OSError for anything but a regular file.

    O_NONBLOCK also counts for a file with a lease, whose holder could delay the open.
    """
    links = 0 if follow else getattr(os, "O_NOFOLLOW", 0)
    if sys.platform != "linux":
        return _checked(os.open(path, os.O_RDONLY | _QUIETLY | links, dir_fd=dir_fd), path)
    place = _checked(os.open(path, os.O_PATH | os.O_CLOEXEC | links, dir_fd=dir_fd), path)
    try:
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | _QUIETLY)
    finally:
        os.close(place)


def _checked(fd: int, path: str) -> int:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd


def read_regular(path: str, most: int) -> bytes:
    """The start of a regular file, at most `most` bytes."""
    fd = open_regular(path)
    try:
        return read_most(fd, most)
    finally:
        os.close(fd)


def read_most(fd: int, most: int) -> bytes:
    parts: list[bytes] = []
    while most > 0:
        part = os.read(fd, min(most, 1 << 20))
        if not part:
            break
        parts.append(part)
        most -= len(part)
    return b"".join(parts)
