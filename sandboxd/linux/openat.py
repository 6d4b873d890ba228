"""Open a canonical path without following any symlink on the way.

Python has no openat2. RESOLVE_NO_SYMLINKS makes the kernel refuse a path of which any part was
swapped for a symlink after it was resolved.
"""

from __future__ import annotations

import ctypes
import errno
import os

from sandboxd.policy.plan import Identity
from sandboxd.resource_errors import resource_error
from sandboxd.types import PathChanged

_OPENAT2 = 437  # the same number on every architecture since 5.6
_AT_FDCWD = -100
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_NO_MAGICLINKS = 0x02
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def open_path(path: str) -> int:
    """An O_PATH descriptor of exactly this path. OSError(ELOOP) if a symlink is on the way."""
    flags = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW
    how = _OpenHow(flags, 0, _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
    fd: int = _libc.syscall(
        _OPENAT2, _AT_FDCWD, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)
    )
    if fd >= 0:
        return fd
    number = ctypes.get_errno()
    if number == errno.ENOSYS:
        return _open_stepwise(path)
    raise OSError(number, os.strerror(number), path)


def _open_stepwise(path: str) -> int:
    """The same on kernels before 5.6: one component at a time."""
    flags = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW
    at = os.open("/", flags | os.O_DIRECTORY)
    for part in (p for p in path.split("/") if p):
        try:
            step = os.open(part, flags, dir_fd=at)
        finally:
            os.close(at)
        if _is_symlink(step):
            os.close(step)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        at = step
    return at


def _is_symlink(fd: int) -> bool:
    import stat

    return stat.S_ISLNK(os.fstat(fd).st_mode)


def open_checked(path: str, identity: Identity | None) -> int:
    """A descriptor of a planned path; PathDenied if it is not the inode that was checked."""
    try:
        fd = open_path(path)
    except OSError as error:
        raise resource_error(error) or changed_error(path, os.strerror(error.errno or 0)) from None
    if identity is not None and Identity.of(os.fstat(fd)) != identity:
        os.close(fd)
        raise changed_error(path, "it was replaced")
    return fd


def is_unchanged(path: str, identity: Identity) -> bool:
    try:
        return Identity.of(os.lstat(path)) == identity
    except OSError:
        return False


def changed_error(path: str, how: str) -> PathChanged:
    return PathChanged(
        f"{path} changed between the check and the mount: {how}",
        field="manifest",
        remedy="send the request again",
    )
