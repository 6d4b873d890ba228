"""Local files of an upload or a download.

A command in the sandbox may change them meanwhile (they may lie in its workspace), so the root is
opened once, and every folder is entered and every file is opened without following links.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0) | os.O_RDONLY | _CLOEXEC
_BINARY = getattr(os, "O_BINARY", 0)
_DESCENDS = os.open in os.supports_dir_fd


class UnsafeLink(ValueError):
    """A symlink that leads out of the folder that is copied."""


# The folder of a transfer: a descriptor, or its path where there are none for folders (Windows).
Root = int | Path


@contextmanager
def pinned(path: Path) -> Iterator[Root]:
    """The folder that is there now, whatever takes its place meanwhile."""
    if not _DESCENDS:
        yield path
        return
    fd = os.open(path, _FOLDER)
    try:
        yield fd
    finally:
        os.close(fd)


class LocalEntry(NamedTuple):
    """`name` is relative to the folder, with slashes. `target`: of a link."""

    name: str
    type: Literal["dir", "file", "symlink"]
    size: int = 0
    mode: int = 0
    target: str = ""


def scan(root: Root) -> list[LocalEntry]:
    """Folders before what is in them. Special files are left out."""
    found: list[LocalEntry] = []
    for below, names, place in _walk(root):
        for name in sorted(names):
            shown = (below / name).as_posix()
            path = name if place is not None else str(Path(str(root), shown))
            status = os.lstat(path, dir_fd=place)
            if stat.S_ISLNK(status.st_mode):
                found.append(LocalEntry(shown, "symlink", target=os.readlink(path, dir_fd=place)))
            elif stat.S_ISDIR(status.st_mode):
                found.append(LocalEntry(shown, "dir"))
            elif stat.S_ISREG(status.st_mode):
                mode = stat.S_IMODE(status.st_mode) & 0o777
                found.append(LocalEntry(shown, "file", status.st_size, mode))
    return found


def _walk(root: Root) -> Iterator[tuple[Path, list[str], int | None]]:
    """Each folder below the root, the names in it, and its descriptor."""
    if not isinstance(root, int):
        for folder, folders, files in os.walk(root):
            yield Path(folder).relative_to(root), [*folders, *files], None
    elif sys.platform != "win32":  # where a root is never a descriptor
        for folder, folders, files, fd in os.fwalk(".", dir_fd=root):
            yield Path(folder), [*folders, *files], fd


def check_name(name: str) -> None:
    """ValueError if a name that the sandbox gave leads elsewhere."""
    if any(part in ("", ".", "..") for part in name.split("/")) or (
        not _DESCENDS and ("\\" in name or ":" in name)
    ):
        raise ValueError(f"the sandbox names a file outside the folder: {name!r}")


def check_link(name: str, target: str) -> None:
    """UnsafeLink unless the link stays in the folder, also through other links that do.

    `..` is accepted at the beginning only: behind another link it would mean another folder.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    if not target or target.startswith("/") or ".." in parts[ups:] or ups > name.count("/"):
        raise UnsafeLink(
            f"{name} is a link that leads out of the folder: {target!r}; "
            'links="skip" leaves such links out'
        )


@contextmanager
def opened(root: Root, name: str) -> Iterator[BinaryIO]:
    """A regular file below `root` for reading."""
    with _parent(root, name) as (place, last):
        flags = os.O_RDONLY | os.O_NONBLOCK if hasattr(os, "O_NONBLOCK") else os.O_RDONLY
        fd = os.open(last, flags | _NO_LINK | _CLOEXEC | _BINARY, dir_fd=place)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError(f"{name} is no regular file any more")
        yield file


def make_folder(root: Root, name: str) -> None:
    check_name(name)
    with _parent(root, name) as (place, last), suppress(FileExistsError):
        os.mkdir(last, dir_fd=place)


@contextmanager
def replaced(root: Root, name: str, mode: int) -> Iterator[BinaryIO]:
    """A new file in place of what has this name; set-id bits are never set."""
    check_name(name)
    with _parent(root, name) as (place, last):
        with suppress(FileNotFoundError):
            os.unlink(last, dir_fd=place)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC | _BINARY
        fd = os.open(last, flags, mode & 0o777, dir_fd=place)
    with open(fd, "wb") as file:
        yield file


def make_link(root: Root, name: str, target: str) -> None:
    check_name(name)
    check_link(name, target)
    with _parent(root, name) as (place, last):
        with suppress(FileNotFoundError):
            os.unlink(last, dir_fd=place)
        os.symlink(target, last, dir_fd=place)


@contextmanager
def _parent(root: Root, name: str) -> Iterator[tuple[int | None, str]]:
    """The folder of `name` as a descriptor, and its last part. Without descriptors for folders
    (Windows): its whole path, whose folders are checked."""
    *folders, last = name.split("/")
    if not _DESCENDS:
        place = Path(str(root))
        for part in folders:
            place = place / part
            if place.is_symlink():
                raise OSError(f"{place} is a link: nothing is copied through it")
        yield None, str(place / last)
        return
    fd = os.dup(root) if isinstance(root, int) else os.open(root, _FOLDER)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER | _NO_LINK, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd, last
    finally:
        os.close(fd)
