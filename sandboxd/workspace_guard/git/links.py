"""Links, pipes and sockets in a git dir, where git has plain files and folders.

Git on the host writes through a link: a reflog that is a link to a start-up file of a shell gets
lines whose text a command chose.
"""

from __future__ import annotations

import os
import stat

from sandboxd.workspace_guard.dirfd import enter, listable, stat_at
from sandboxd.workspace_guard.quarantine.quarantine import (
    Moved,
    Offence,
    Quarantine,
    Undo,
    move_aside,
)

# Folders in which git writes files in place. In others it renames finished files.
FOLDERS = ("logs", "rr-cache", "NOTES_MERGE_WORKTREE", "worktrees")
MOST_ENTRIES = 200_000
_AT_ONCE = 256  # while the command runs
# Scripts that share one repository between folders make links of these.
_COMMON_LINKS = ("logs/refs", "logs/HEAD")
_Identity = tuple[int, int, int]


class GitDirLinks:
    """Make it before the command starts: what is a link then may stay one.

    `before`: the names there and whether each is plain; None for a repository that a command made.
    """

    def __init__(self, folder: int, git_dir: str, before: dict[str, bool] | None) -> None:
        self._folder = folder
        self._path = git_dir
        names = [name for name, is_plain in (before or {}).items() if not is_plain]
        known = () if before is None else (*names, *_COMMON_LINKS)
        self._before = {name: self._identity(name) for name in known}

    def look(self, plain: dict[str, bool], *, finished: bool) -> list[Offence]:
        """`plain`: the names in the git dir, and whether each is a plain file or a folder."""
        found = [
            Offence(path, False, move_aside(self._folder, name, path), "no plain file")
            for name, is_plain in plain.items()
            if not is_plain and self._is_new(name)
            for path in (os.path.join(self._path, name),)
        ]
        left = MOST_ENTRIES if finished else _AT_ONCE
        for name in FOLDERS:
            if plain.get(name):
                left = self._walk(name, left, found)
                if left < 0 and finished:
                    path = os.path.join(self._path, name)
                    undo = move_aside(self._folder, name, path)
                    found.append(Offence(path, False, undo, "too many entries to look for links"))
                    break
        return found

    def _is_new(self, name: str) -> bool:
        return self._before.get(name) != self._identity(name)

    def _identity(self, name: str) -> _Identity | None:
        found = stat_at(self._folder, name)
        if found is None or stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
            return None
        return found.st_dev, found.st_ino, found.st_ctime_ns

    def _walk(self, top: str, most: int, found: list[Offence]) -> int:
        """How many more entries may be checked; below 0 if not all were."""
        pending = [top]
        while pending:
            folder = pending.pop()
            plain = self._listed(folder, most)
            if plain is None:
                return -1
            most -= len(plain)
            for name, is_plain in plain.items():
                inner = f"{folder}/{name}"
                if is_plain is None:
                    pending.append(inner)
                elif not is_plain and self._is_new(inner):
                    found.append(self._offence(inner))
        return most

    def _listed(self, folder: str, most: int) -> dict[str, bool | None] | None:
        fd = self._enter(folder)
        if fd is None:
            return {}
        try:
            return _kinds(fd, most)
        finally:
            os.close(fd)

    def _enter(self, folder: str) -> int | None:
        return enter_below(self._folder, folder)

    def _offence(self, inner: str) -> Offence:
        return link_offence(self._folder, self._path, inner)


def enter_below(git_dir: int, folder: str) -> int | None:
    at = os.dup(git_dir)
    for part in folder.split("/"):
        entered = enter(at, part)
        os.close(at)
        if entered is None:
            return None
        at = entered
    return at


def link_offence(git_dir: int, git_dir_path: str, inner: str) -> Offence:
    return inner_offence(git_dir, git_dir_path, inner, "a link that git would write through")


def inner_offence(git_dir: int, git_dir_path: str, inner: str, why: str) -> Offence:
    """An entry below a folder of the git dir, to be moved aside."""
    path = os.path.join(git_dir_path, inner)
    return Offence(path, False, _aside(git_dir, inner, path), why)


def _aside(git_dir: int, inner: str, path: str) -> Undo:
    def undo(quarantine: Quarantine) -> Moved:
        folder, _, name = inner.rpartition("/")
        fd = enter_below(git_dir, folder) if folder else os.dup(git_dir)
        if fd is None:
            return Moved(path, None, "its folder is gone")
        try:
            return move_aside(fd, name, path)(quarantine)
        finally:
            os.close(fd)

    return undo


def _kinds(folder: int, most: int) -> dict[str, bool | None] | None:
    """Names: None for a folder, otherwise whether it is a plain file."""
    try:
        fd = listable(folder)
    except OSError:
        return {}
    found: dict[str, bool | None] = {}
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                if len(found) >= most:
                    return None
                is_dir = entry.is_dir(follow_symlinks=False)
                found[entry.name] = None if is_dir else entry.is_file(follow_symlinks=False)
    finally:
        os.close(fd)
    return found


def log_folders(git_dir: int, most: int) -> list[int] | None:
    """Descriptors of the folders in `logs`, itself among them; None if there are more."""
    first = enter(git_dir, "logs")
    found = [first] if first is not None else []
    for folder in found:
        for name, kind in (_kinds(folder, 4096) or {}).items():
            inner = enter(folder, name) if kind is None else None
            if inner is not None:
                found.append(inner)
            if len(found) > most:
                for fd in found:
                    os.close(fd)
                return None
    return found
