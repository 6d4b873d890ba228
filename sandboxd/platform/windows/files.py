"""Looks at the host's files, on Windows: policy and denials give and get internal paths.

The sibling of posix/files. Paths that lie on no drive do not exist.
"""

from __future__ import annotations

import msvcrt
import os
import posixpath
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd.platform import regular_file
from sandboxd.platform.open_flags import NO_FOLLOW, PRIVATE, QUIETLY
from sandboxd.platform.windows.paths import internal, native, spelling_problem

assert sys.platform == "win32"

PATH_SEPARATOR = ";"
_LOCK_POLL_S = 0.02


class DirEntry:
    """What `os.scandir` found, with an internal path."""

    __slots__ = ("_found", "name", "path")

    def __init__(self, found: os.DirEntry[str], folder: str) -> None:
        self._found = found
        self.name = found.name
        self.path = posixpath.join(folder, found.name)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._found.is_dir(follow_symlinks=follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._found.is_file(follow_symlinks=follow_symlinks)

    def is_symlink(self) -> bool:
        return self._found.is_symlink() or _is_junction(self._found.path)


def lstat(path: str) -> os.stat_result:
    return os.lstat(native(path))


def stat(path: str) -> os.stat_result:
    return os.stat(native(path))


def readlink(path: str) -> str:
    return internal(os.readlink(native(path)))


def access(path: str, mode: int) -> bool:
    return _on_drive(path) and os.access(native(path), mode)


@contextmanager
def scandir(path: str) -> Iterator[Iterator[DirEntry]]:
    with os.scandir(native(path)) as found:
        yield (DirEntry(entry, path) for entry in found)


def realpath(path: str, *, strict: bool = False) -> str:
    """Canonical, with the case that the names have on disk."""
    if not _on_drive(path) and not strict:
        return posixpath.normpath(path)
    return internal(os.path.realpath(native(path), strict=strict))


def exists(path: str) -> bool:
    return _on_drive(path) and os.path.exists(native(path))


def lexists(path: str) -> bool:
    return _on_drive(path) and os.path.lexists(native(path))


def isdir(path: str) -> bool:
    return _on_drive(path) and os.path.isdir(native(path))


def isfile(path: str) -> bool:
    return _on_drive(path) and os.path.isfile(native(path))


def islink(path: str) -> bool:
    """A junction leads elsewhere as a symlink does, and needs no privilege to be made."""
    if not _on_drive(path):
        return False
    return os.path.islink(native(path)) or _is_junction(native(path))


def expanduser(path: str) -> str:
    return internal(os.path.expanduser(path)) if path.startswith("~") else path


def open_regular(path: str) -> int:
    return regular_file.open_regular(native(path))


def lock(descriptor: int, *, wait: bool = True) -> None:
    """An exclusive lock until it is closed; BlockingIOError if another has it and `wait` is off."""
    while True:
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            return
        except OSError as error:
            if not wait:
                raise BlockingIOError(error.errno, "locked by another process") from None
            time.sleep(_LOCK_POLL_S)


def allocated_bytes(found: os.stat_result) -> int:
    """What a file takes on the disk, as far as its size tells."""
    return found.st_size


def changed_ns(found: os.stat_result) -> int:
    """When it was last changed, which no command can set back; 0: Windows lets commands do that."""
    return 0


def sync(descriptor: int) -> None:
    """Written data is on the disk when it returns."""
    os.fsync(descriptor)


def is_root() -> bool:
    """Ownership by uid means nothing here: no command runs as another user than the daemon's."""
    return False


def _is_junction(path: str) -> bool:
    try:
        return getattr(os.lstat(path), "st_reparse_tag", 0) == _MOUNT_POINT_TAG
    except OSError:
        return False


_MOUNT_POINT_TAG = 0xA0000003


def _on_drive(path: str) -> bool:
    try:
        native(path)
    except FileNotFoundError:
        return False
    return True


__all__ = [
    "NO_FOLLOW", "PATH_SEPARATOR", "PRIVATE", "QUIETLY", "DirEntry", "access", "allocated_bytes",
    "changed_ns", "exists", "expanduser", "internal", "is_root", "isdir", "isfile", "islink",
    "lexists", "lock", "lstat", "native", "open_regular", "readlink", "realpath", "scandir",
    "spelling_problem", "stat", "sync",
]  # fmt: skip
