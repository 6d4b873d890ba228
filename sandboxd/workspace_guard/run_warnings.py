"""What a result warns about: repositories that the command made, a main checkout that changed.

Repositories are looked for in the folders that the plan looked into. Their ctimes show, with one
system call each, where names were added.

A linked worktree shares its git dir with the main checkout, whose index and HEAD cannot be
protected: the next commit there replaces a mounted file, and restoring the old content would undo
that commit.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection

from sandboxd.policy.protected import nested_git
from sandboxd.policy.protected.nested_git import Repositories

MOST_NAMED = 20
_MOST_FOLDERS = 512
_DEEPEST = 6
_MAIN_STATE = ("HEAD", "index")


class RunWarnings:
    """Make it before the command starts."""

    def __init__(self, before: Repositories) -> None:
        self._before = before
        self._known = frozenset(before.folders)
        self._remember()

    def _remember(self) -> None:
        self._made: tuple[str, ...] = ()
        self._times = {folder: _time(folder) for folder in self._before.folders}
        self._states = {path: _time(path) for path in self._main_states()}

    def _main_states(self) -> list[str]:
        return [os.path.join(f, n) for f in self._before.main_checkouts for n in _MAIN_STATE]

    def renew(self, before: Repositories) -> bool:
        """For another command, if the folders are the same."""
        if before is not self._before and before != self._before:
            return False
        self._remember()
        return True

    @property
    def workspace(self) -> str:
        return self._before.folders[0]

    def overtaken(self) -> list[str]:
        """Folders that existed before and are repositories now; not the workspace itself.

        After the command, before `look`.
        """
        self._made = self._new()
        return [one for one in self._made if one in self._known and one != self.workspace]

    def undone(self, paths: Collection[str]) -> None:
        self._made = tuple(one for one in self._made if one not in map(os.path.dirname, paths))

    def look(self) -> list[str]:
        """Sentences for the result."""
        changed = (path for path, before in self._states.items() if _time(path) != before)
        return [*map(_made_repository, self._made), *map(_changed_main, changed)]

    def _new(self) -> tuple[str, ...]:
        """Folders that have become repositories since, at most MOST_NAMED of them."""
        changed = [f for f, before in self._times.items() if _time(f) != before]
        found: list[str] = []
        left = _MOST_FOLDERS
        for folder in changed:
            left -= self._walk(folder, found, left)
            if left <= 0 or len(found) >= MOST_NAMED:
                break
        return tuple(sorted(set(found))[:MOST_NAMED])

    def _walk(self, start: str, found: list[str], most: int) -> int:
        """Into `start` and all below it that was not looked into before. Returns the count."""
        pending = deque([(start, 0)])
        looked = 0
        while pending and looked < most:
            folder, depth = pending.popleft()
            looked += 1
            names, inner = _entries(folder)
            if nested_git.is_repository(names) and folder not in self._before.paths:
                found.append(folder)
            if depth < _DEEPEST:
                pending += [(path, depth + 1) for path in inner if path not in self._known]
        return looked


def _entries(folder: str) -> tuple[set[str], list[str]]:
    """What makes it a repository, by whatever spelling the file system finds it, and folders."""
    inner: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                is_dir = entry.is_dir(follow_symlinks=False)
                if is_dir and nested_git.is_step(entry.name, is_dir) and entry.name != ".git":
                    inner.append(entry.path)
    except OSError:
        return set(), []
    names = {one for one in nested_git.MARKS if os.path.lexists(os.path.join(folder, one))}
    return names, inner


def _time(folder: str) -> int:
    try:
        return os.lstat(folder).st_ctime_ns
    except OSError:
        return 0


def _made_repository(folder: str) -> str:
    return (
        f"the command made a git repository in {folder}: look at its config and hooks before you "
        "run git there, or add it to another repository with git add"
    )


def _changed_main(path: str) -> str:
    return (
        f"{path}, which belongs to the main checkout of this worktree, changed while the command "
        "ran: look at `git status` there unless you changed it yourself"
    )
