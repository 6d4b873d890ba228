"""Find a path below a writable folder by descriptors, one component at a time.

The folder's content may come from a hostile command that is still running: no symlink is followed,
so nothing outside the folder is ever looked at, moved or written.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from sandboxd.linux.openat import changed_error, open_path
from sandboxd.platform.open_flags import (
    LIST_FOLDER,
    NO_FOLLOW,
    OPEN_FOLDER,
    PATH_ONLY,
    QUIETLY,
)
from sandboxd.posix.descriptors import change_mode

_T = TypeVar("_T")
_MOST_WIDENED = 4096
_widened: set[tuple[int, int]] = set()  # folders whose owner was given access again
_FOLDER = PATH_ONLY | OPEN_FOLDER


class Entry(msgspec.Struct, frozen=True):
    """An entry `name` of the open folder `parent`. `path` is for messages."""

    parent: int
    name: str
    path: str
    status: os.stat_result

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


def open_root(path: str) -> int:
    """The folder at a canonical path: on Linux no link on the way is followed either."""
    if sys.platform != "linux":
        return os.open(path, _FOLDER)
    fd = open_path(path)
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return fd


def open_planned(path: str) -> int:
    """A writable folder of the plan; PathDenied if it was replaced since the plan was made."""
    try:
        return open_root(path)
    except OSError as error:
        raise changed_error(path, os.strerror(error.errno or 0)) from None


@contextlib.contextmanager
def find(root: int, root_path: str, path: str) -> Iterator[Entry | None]:
    """The entry at `path`, or the symlink that is in the place of a folder above it; None if
    missing."""
    parts = _steps(root_path, path)
    with contextlib.ExitStack() as held:
        at, where = root, root_path
        for index, part in enumerate(parts):
            entry = look(at, part, os.path.join(where, part))
            last = index == len(parts) - 1
            if entry is None or last or entry.is_link:
                yield entry
                return
            if not entry.is_dir:
                break
            entered = enter(at, part)
            if entered is None:
                break
            held.callback(os.close, entered)
            at, where = entered, entry.path
        yield None


def _steps(root_path: str, path: str) -> list[str]:
    below = root_path.rstrip("/") + "/"
    if path.startswith(below):
        return path[len(below) :].split("/")
    return os.path.relpath(path, root_path).split("/")


def open_folder(root: int, root_path: str, path: str) -> int | None:
    """A descriptor of the folder at `path`, which may be the root itself; None: no folder."""
    if path == root_path:
        return os.open(".", _FOLDER, dir_fd=root)
    parent, name, is_parent = nearest(root, root_path, path)
    try:
        return enter(parent, name) if is_parent else None
    finally:
        os.close(parent)


def listable(folder: int) -> int:
    """The open folder again, for os.scandir."""
    return os.open(".", LIST_FOLDER, dir_fd=folder)


def list_names(folder: int, most: int = 100_000) -> list[str] | None:
    """The names in a folder, of which there may be `most`; None if it cannot be read."""
    plain = list_plain(folder, most)
    return sorted(plain) if plain is not None else None


def list_plain(folder: int, most: int = 100_000) -> dict[str, bool] | None:
    """The same with whether each is a plain file or a folder."""
    try:
        fd = _with_access(folder, lambda: listable(folder))
    except OSError:
        return None
    try:
        with os.scandir(fd) as entries:
            found = {
                entry.name: entry.is_file(follow_symlinks=False)
                or entry.is_dir(follow_symlinks=False)
                for entry in itertools.islice(entries, most + 1)
            }
    except OSError:
        return None
    finally:
        os.close(fd)
    return found if len(found) <= most else None


class Nearest(NamedTuple):
    """The deepest folder above a path that is there; `name` is the next step from it.

    `is_parent`: it is the folder that the path itself is in. The receiver closes `folder`.
    """

    folder: int
    name: str
    is_parent: bool


def nearest(root: int, root_path: str, path: str) -> Nearest:
    parts = _steps(root_path, path)
    at = os.open(".", _FOLDER, dir_fd=root)
    for part in parts[:-1]:
        entered = enter(at, part)
        if entered is None:
            return Nearest(at, part, False)
        os.close(at)
        at = entered
    return Nearest(at, parts[-1], True)


def enter(folder: int, name: str) -> int | None:
    """A descriptor of the folder `name`; None if there is no folder of that name."""
    try:
        return _with_access(folder, lambda: os.open(name, _FOLDER, dir_fd=folder))
    except OSError:
        return None


def readable(folder: int, name: str) -> int:
    """A descriptor for reading a file or folder. Does not block on a pipe."""
    return os.open(name, os.O_RDONLY | NO_FOLLOW | QUIETLY, dir_fd=folder)


_distrusted: set[int] = set()


def distrust(device: int) -> None:
    """A file system of which the kernel's copies and the times of last change prove nothing."""
    _distrusted.add(device)


def is_distrusted(device: int) -> bool:
    return device in _distrusted


def read_file(folder: int, name: str, most: int) -> bytes | None:
    """A regular file's content; None if it is none, is longer, or cannot be read."""
    try:
        fd = readable(folder, name)
    except OSError:
        return None
    try:
        # fdopen refuses folders, and reading a device might never end.
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        if sys.platform == "linux" and is_distrusted(status.st_dev):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(most + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    return data if len(data) <= most else None


def stat_at(folder: int, name: str) -> os.stat_result | None:
    """Of the entry itself, not of what a link leads to; None if it cannot be examined."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def is_gone(folder: int, name: str) -> bool:
    """Whether the entry is missing: a running command may remove it after it was listed."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def make_accessible(fd: int) -> None:
    """Give the owner full access to an open folder. The daemon is that user, or root."""
    found = os.fstat(fd)
    if len(_widened) >= _MOST_WIDENED:
        _widened.clear()
    _widened.add((found.st_dev, found.st_ino))
    change_mode(fd, stat.S_IMODE(found.st_mode) | stat.S_IRWXU)


def restore_mode(folder: int, mode: int) -> None:
    """Restore the owner's rights: a command could lock its user out of a folder.

    Other changes of a mode stay: `git init --shared` makes some.
    """
    now = os.fstat(folder)
    identity = now.st_dev, now.st_ino
    if identity in _widened or now.st_mode & stat.S_IRWXU != mode & stat.S_IRWXU:
        change_mode(folder, stat.S_IMODE(mode))
        _widened.discard(identity)


def look(folder: int, name: str, path: str) -> Entry | None:
    try:
        status = _with_access(folder, lambda: os.stat(name, dir_fd=folder, follow_symlinks=False))
    except OSError:
        return None
    return Entry(folder, name, path, status)


def _with_access(folder: int, action: Callable[[], _T]) -> _T:
    """Retry with full access: a command may have removed the rights of a folder to hide its
    content."""
    try:
        return action()
    except PermissionError:
        make_accessible(folder)
        return action()
