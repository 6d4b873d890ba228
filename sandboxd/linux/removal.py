"""Remove a tree of any depth and width, by descriptor, with few descriptors open.

A nested folder is moved up to the top of the tree and emptied there, so the depth does not matter:
there is no recursion and no long path. Links are never followed. Mounts are left alone. The result
says whether something could not be removed.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sandboxd.platform.open_flags import LIST_FOLDER, OPEN_FOLDER, PATH_ONLY

_PLACE = PATH_ONLY | OPEN_FOLDER


def remove_tree(path: str) -> bool:
    """Whether `path` is gone. It may be a file, and need not exist. Raises nothing."""
    above, name = os.path.split(path.rstrip("/"))
    try:
        parent = os.open(above or ".", PATH_ONLY | LIST_FOLDER)
    except OSError:
        return not os.path.lexists(path)
    try:
        return remove_at(parent, name)
    finally:
        os.close(parent)


def empty_tree(top: int) -> bool:
    """Remove everything in the folder `top`; whether nothing is left."""
    device = os.fstat(top).st_dev
    mount = _mount(top)
    numbers = itertools.count()
    left: set[str] = set()
    while True:
        names = _some(top, left)
        if not names:
            return not left
        for name in names:
            if not _taken_away(top, name, device, mount, numbers):
                left.add(name)


def _some(top: int, left: set[str], most: int = 1000) -> list[str]:
    """Names in `top` whose removal has not failed yet."""
    try:
        with os.scandir(top) as found:
            return list(itertools.islice((e.name for e in found if e.name not in left), most))
    except OSError:
        return []


def _taken_away(
    top: int, name: str, device: int, mount: str | None, numbers: Iterator[int]
) -> bool:
    try:
        os.unlink(name, dir_fd=top)
        return True
    except FileNotFoundError:
        return True
    except OSError:  # a folder: EISDIR or EPERM
        pass
    try:
        with _entered(top, name) as folder:
            if os.fstat(folder).st_dev != device or _mount(folder) != mount:
                return False
            _flatten(folder, top, numbers)
        os.rmdir(name, dir_fd=top)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _flatten(folder: int, top: int, numbers: Iterator[int]) -> None:
    """Remove the files in `folder`, move its folders to `top`. Failures stay in it."""
    left: set[str] = set()
    while names := _some(folder, left):
        for name in names:
            try:
                os.unlink(name, dir_fd=folder)
            except OSError:
                if not _moved_up(folder, name, top, numbers):
                    left.add(name)


def _moved_up(folder: int, name: str, top: int, numbers: Iterator[int]) -> bool:
    """Moving a folder changes its `..`, so the folder itself must be writable."""
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
            return False
        with suppress(OSError):
            os.rmdir(name, dir_fd=folder)
            return True
        with suppress(OSError), _entered(folder, name):
            pass
        for _ in range(100):
            new = f"{next(numbers)}.moved"
            if not _exists(top, new):
                os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
                return True
    except OSError:
        pass
    return False


@contextmanager
def _entered(parent: int, name: str) -> Iterator[int]:
    """Adds the owner's permissions first if they are missing."""
    place = os.open(name, _PLACE, dir_fd=parent)
    try:
        status = os.fstat(place)
        if status.st_mode & 0o700 != 0o700 and os.geteuid() in (0, status.st_uid):
            with suppress(OSError):
                os.chmod(f"/proc/self/fd/{place}", 0o700)
        folder = os.open(".", OPEN_FOLDER, dir_fd=place)
    finally:
        os.close(place)
    try:
        yield folder
    finally:
        os.close(folder)


def remove_at(parent: int, name: str) -> bool:
    """The same for an entry of an open folder."""
    with suppress(OSError):
        os.unlink(name, dir_fd=parent)
    if _exists(parent, name):
        with suppress(OSError):
            with _entered(parent, name) as folder:
                empty_tree(folder)
            os.rmdir(name, dir_fd=parent)
    return not _exists(parent, name)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _mount(fd: int) -> str | None:
    """The number of the mount that the folder lies on; a bind mount shares its device."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
            return next((line for line in file if line.startswith("mnt_id:")), None)
    except OSError:
        return None
