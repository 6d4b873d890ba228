"""Move a file into its place without overwriting anything: by a new name, or by an exchange."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

_RENAME_EXCHANGE = 2
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def place_new(from_folder: int, from_name: str, folder: int, name: str) -> None:
    """FileExistsError if there is something already."""
    try:
        os.link(from_name, name, src_dir_fd=from_folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in (errno.EPERM, *_NOT_SUPPORTED):
            raise
        _place_by_rename(from_folder, from_name, folder, name)
    else:
        os.unlink(from_name, dir_fd=from_folder)


def _place_by_rename(from_folder: int, from_name: str, folder: int, name: str) -> None:
    """Where a file system has no hard links."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(from_name, name, src_dir_fd=from_folder, dst_dir_fd=folder)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)


def exchange(from_folder: int, from_name: str, folder: int, name: str) -> None:
    """Both names change places at once. Where that cannot be done, one after the other."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        paths = from_folder, os.fsencode(from_name), folder, os.fsencode(name)
        if libc.renameat2(*paths, _RENAME_EXCHANGE) == 0:
            return
        number = ctypes.get_errno()
        if number not in _NOT_SUPPORTED:
            raise OSError(number, os.strerror(number), name)
    aside = f"{from_name}-old"
    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=from_folder)
    place_new(from_folder, from_name, folder, name)
    os.rename(aside, from_name, src_dir_fd=from_folder, dst_dir_fd=from_folder)
