"""Looks at the host's files, on POSIX systems: internal paths are the host's own.

`os`' own functions under the names that policy and denials use; the sibling for Windows translates
paths. Nothing is wrapped, so that a look costs one system call and nothing else.
"""

from __future__ import annotations

import fcntl
import os
from os import access, lstat, readlink, scandir, stat
from os.path import exists, expanduser, isdir, isfile, islink, lexists, realpath

from sandboxd.platform.open_flags import NO_FOLLOW, PRIVATE, QUIETLY
from sandboxd.platform.regular_file import open_regular

DirEntry = os.DirEntry[str]
PATH_SEPARATOR = ":"


def native(path: str) -> str:
    """The host's spelling of an internal path."""
    return path


def internal(path: str) -> str:
    """The POSIX spelling of a host path, which policy, plans and denials use."""
    return path


def spelling_problem(path: str) -> str | None:
    """Why a caller's path is refused without looking at the file system; None if it is not."""
    return None if path.startswith("/") else "is not absolute"


def lock(descriptor: int, *, wait: bool = True) -> None:
    """An exclusive lock until it is closed; BlockingIOError if another has it and `wait` is off."""
    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def allocated_bytes(found: os.stat_result) -> int:
    """What a file takes on the disk."""
    return found.st_blocks * 512


def changed_ns(found: os.stat_result) -> int:
    """When it was last changed, which no command can set back; 0 where no such time is kept."""
    return found.st_ctime_ns


def sync(descriptor: int) -> None:
    """Written data is on the disk when it returns."""
    getattr(os, "fdatasync", os.fsync)(descriptor)


def is_root() -> bool:
    return os.geteuid() == 0


__all__ = [
    "NO_FOLLOW", "PATH_SEPARATOR", "PRIVATE", "QUIETLY", "DirEntry", "access", "allocated_bytes",
    "changed_ns", "exists", "expanduser", "internal", "is_root", "isdir", "isfile", "islink",
    "lexists", "lock", "lstat", "native", "open_regular", "readlink", "realpath", "scandir",
    "spelling_problem", "stat", "sync",
]  # fmt: skip
