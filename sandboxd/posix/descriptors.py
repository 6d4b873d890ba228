"""What Linux does through O_PATH and /proc/self/fd, and other POSIX systems in their own ways."""

from __future__ import annotations

import os
import socket
import sys

from sandboxd.platform import path_case


def path_of(fd: int) -> str:
    """Where the file or folder behind a descriptor is now."""
    if sys.platform == "darwin":
        return path_case.path_of(fd)
    return os.readlink(f"/proc/self/fd/{fd}")


def give_to(file: int | str, uid: int, gid: int) -> None:
    """Change the owner of a descriptor's or a path's file."""
    if sys.platform != "win32":
        os.chown(file, uid, gid)


def is_connected_stream(fd: int) -> bool:
    """A Unix stream socket with one peer for good."""
    with socket.socket(fileno=os.dup(fd)) as sock:
        if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
            return False
        try:
            sock.getpeername()
        except OSError:
            return False
        return True


def change_mode(fd: int, mode: int) -> None:
    """fchmod; on Linux it refuses O_PATH descriptors, and this name leads to the same inode."""
    if sys.platform == "linux":
        os.chmod(f"/proc/self/fd/{fd}", mode)
    elif sys.platform != "win32":
        os.fchmod(fd, mode)
