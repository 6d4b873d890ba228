"""Files of a repository, read without git: its settings and its index."""

from __future__ import annotations

import os
import stat

_MOST_BYTES = 1 << 26
_READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


def index_of(path: str) -> bytes | None:
    """Git's index; None: it cannot be read, or its paths are compressed (version 4)."""
    data = read(path)
    return data if data[:4] == b"DIRC" and data[7:8] in (b"\2", b"\3") else None


def read(path: str) -> bytes:
    """Empty if it cannot be read. A command can have made it: opening it waits for nothing and
    follows no link."""
    try:
        with open(os.open(path, _READING), "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read(_MOST_BYTES)
    except OSError:
        pass
    return b""


def git_dirs(start: str) -> tuple[str, str, str]:
    """Of the repository that `start` lies in: its top folder, its git dir, and the git dir that it
    shares with other worktrees."""
    folder = start
    while not os.path.lexists(os.path.join(folder, ".git")) and not _is_bare(folder):
        above = os.path.dirname(folder)
        if above == folder:
            folder = start
            break
        folder = above
    pointer = os.path.join(folder, ".git")
    git_dir = pointer if os.path.isdir(pointer) else folder
    if os.path.isfile(pointer):
        target = read(pointer).decode(errors="replace").removeprefix("gitdir:").strip()
        git_dir = os.path.normpath(os.path.join(folder, target))
    common = read(os.path.join(git_dir, "commondir")).decode(errors="replace").strip()
    return folder, git_dir, os.path.normpath(os.path.join(git_dir, common)) if common else git_dir


def _is_bare(folder: str) -> bool:
    return all(os.path.lexists(os.path.join(folder, name)) for name in ("HEAD", "objects"))


def enclosing_bare(path: str, top: str) -> str | None:
    """The bare repository below `top` that a path lies in, both relative to `top`."""
    folder = os.path.dirname(path)
    while folder and not _is_bare(os.path.join(top, folder)):
        folder = os.path.dirname(folder)
    return folder or None


def lists(index: bytes, path: bytes) -> bool:
    """Whether an entry has this path, or one below it: its length, the path, and a zero byte."""
    at = index.find(path)
    while at >= 0:
        length = int.from_bytes(index[at - 2 : at], "big") & 0xFFF
        name, end = index[at : at + length], index[at + length : at + length + 1]
        if end == b"\0" and (name == path or name.startswith(path + b"/")):
            return True
        at = index.find(path, at + 1)
    return False
