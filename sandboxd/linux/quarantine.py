"""Where forbidden files go: a folder in the writable root that they were found in.

The same root, because a rename inside one file system is atomic and loses nothing; their owner can
put them back. What lies there is inert: names lose their dots, and git ignores the folder.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from dataclasses import dataclass

from sandboxd.linux.descent import Spot, enter, make_accessible

PREFIX = ".sandboxd-quarantine-"
_RENAME_NOREPLACE = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Moved:
    """`moved_to` is None when it could not be moved: `error` says why, and it is still there."""

    path: str
    moved_to: str | None
    error: str = ""


class Quarantine:
    """One run's folder below an open root; made when the first thing is moved."""

    def __init__(self, root: int, root_path: str) -> None:
        self._root = root
        self._root_path = root_path
        self._name = PREFIX + secrets.token_hex(6)
        self._fd: int | None = None
        self._count = 0

    def take(self, spot: Spot) -> Moved:
        try:
            folder = self._folder()
            self._count += 1
            name = f"{self._count}-{spot.name.lstrip('.') or 'entry'}"
            _move(spot, folder, name)
        except OSError as error:
            return Moved(spot.path, None, os.strerror(error.errno or 0))
        return Moved(spot.path, os.path.join(self._root_path, self._name, name))

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _folder(self) -> int:
        if self._fd is None:
            try:
                os.mkdir(self._name, 0o700, dir_fd=self._root)
            except PermissionError:
                make_accessible(self._root)
                os.mkdir(self._name, 0o700, dir_fd=self._root)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._name, flags, dir_fd=self._root)
            owner = os.fstat(self._root)
            _give(self._fd, owner)
            ignore = os.open(
                ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600,
                dir_fd=self._fd,
            )  # fmt: skip
            with os.fdopen(ignore, "w") as file:
                file.write("*\n")
                _give(ignore, owner)
        return self._fd


def _give(fd: int, owner: os.stat_result) -> None:
    """A daemon of root must not leave files of root in somebody's workspace."""
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.fchown(fd, owner.st_uid, owner.st_gid)


def _move(spot: Spot, folder: int, name: str) -> None:
    try:
        _rename(spot.parent, spot.name, folder, name)
    except PermissionError:
        # The folder's rights, or those of a moved folder itself, were taken away.
        make_accessible(spot.parent)
        if spot.is_dir:
            inner = enter(spot.parent, spot.name)
            if inner is not None:
                try:
                    make_accessible(inner)
                finally:
                    os.close(inner)
        _rename(spot.parent, spot.name, folder, name)


def _rename(from_dir: int, from_name: str, to_dir: int, to_name: str) -> None:
    source, target = os.fsencode(from_name), os.fsencode(to_name)
    if _libc.renameat2(from_dir, source, to_dir, target, _RENAME_NOREPLACE) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(number, os.strerror(number))
    # The file system does not know the flag; the target is in a fresh folder of our own.
    os.rename(from_name, to_name, src_dir_fd=from_dir, dst_dir_fd=to_dir)
