"""Find a path below a writable folder by descriptors, one component at a time.

Whoever wrote the folder's content may be hostile and even still at work: no symlink is followed, so
nothing outside the folder is ever looked at, moved or written.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Spot:
    """An entry `name` of the open folder `parent`. `path` says where, for people."""

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
    return os.open(path, _FOLDER)


@contextlib.contextmanager
def find(root: int, root_path: str, path: str) -> Iterator[Spot | None]:
    """The entry at `path`, or a symlink that stands in for a folder above it; None: not there."""
    parts = os.path.relpath(path, root_path).split("/")
    with contextlib.ExitStack() as held:
        at, where = root, root_path
        for index, part in enumerate(parts):
            spot = _look(at, part, os.path.join(where, part))
            last = index == len(parts) - 1
            if spot is None or last or spot.is_link:
                yield spot
                return
            if not spot.is_dir:
                break
            entered = enter(at, part)
            if entered is None:
                break
            held.callback(os.close, entered)
            at, where = entered, spot.path
        yield None


class Nearest(NamedTuple):
    """The deepest folder above a path that is there; `name` is the next step from it.

    `is_parent`: it is the folder that the path itself is in. The receiver closes `folder`.
    """

    folder: int
    name: str
    is_parent: bool


def nearest(root: int, root_path: str, path: str) -> Nearest:
    parts = os.path.relpath(path, root_path).split("/")
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
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    return os.open(name, flags, dir_fd=folder)


def read_file(folder: int, name: str, most: int) -> bytes | None:
    """A regular file's content; None if it is none, is longer, or cannot be read."""
    try:
        fd = readable(folder, name)
    except OSError:
        return None
    try:
        # fdopen refuses folders, and reading a device could take for ever.
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(most + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    return data if len(data) <= most else None


def make_accessible(fd: int) -> None:
    """Give the owner, which the daemon is or stands above, full access to an open folder."""
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    # fchmod refuses O_PATH descriptors; this name leads to exactly the same inode.
    os.chmod(f"/proc/self/fd/{fd}", mode | stat.S_IRWXU)


def _look(folder: int, name: str, path: str) -> Spot | None:
    try:
        status = _with_access(folder, lambda: os.stat(name, dir_fd=folder, follow_symlinks=False))
    except OSError:
        return None
    return Spot(folder, name, path, status)


def _with_access(folder: int, action: Callable[[], _T]) -> _T:
    """A command may have taken the rights of a folder away to hide what is in it."""
    try:
        return action()
    except PermissionError:
        make_accessible(folder)
        return action()
