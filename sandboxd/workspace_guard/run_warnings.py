"""What a result warns about: repositories that the command made, a main checkout that changed.

Repositories are looked for in the folders that the plan looked into. Their ctimes show, with one
system call each, where names were added.

A linked worktree shares its git dir with the main checkout, whose index and HEAD cannot be
protected: the next commit there replaces a mounted file, and restoring the old content would undo
that commit.
"""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from sandboxd.platform.current import files
from sandboxd.policy.data.protected_names import OTHER_REPOSITORIES
from sandboxd.policy.protected import nested_git
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.policy.shown_names import named

MOST_NAMED = 20
_MOST_FOLDERS = 512
_DEEPEST = 6
_MAIN_STATE = ("HEAD", "index")


class Overtaken(NamedTuple):
    """Folders of the user that are git repositories now, and new `.hg` and the like in such
    folders, each by the writable root that they lie in. Not the roots themselves, for git."""

    git: dict[str, list[str]]
    others: dict[str, list[str]]


@dataclass(slots=True)
class _Found:
    git: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


class RunWarnings:
    """Make it before the command starts."""

    def __init__(self, before: Repositories) -> None:
        self._before = before
        self._known = frozenset(before.folders)
        self._remember()

    def _remember(self) -> None:
        self._made: tuple[str, ...] = ()
        self._made_others: tuple[str, ...] = ()
        self._times = {folder: _time(folder) for folder in self._before.folders}
        self._states = {path: _time(path) for path in self._main_states()}

    def _main_states(self) -> list[str]:
        return [posixpath.join(f, n) for f in self._before.main_checkouts for n in _MAIN_STATE]

    def renew(self, before: Repositories) -> bool:
        """For another command, if the folders are the same."""
        if before is not self._before and before != self._before:
            return False
        self._remember()
        return True

    def overtaken(self) -> Overtaken:
        """After the command, before `look`."""
        self._made, self._made_others = self._new()
        roots = self._before.roots
        git = [one for one in self._made if one in self._known and one not in roots]
        others = [one for one in self._made_others if posixpath.dirname(one) in self._known]
        return Overtaken(self._before.by_root(git), self._before.by_root(others))

    def undone(self, paths: Collection[str]) -> None:
        self._made = tuple(one for one in self._made if one not in map(posixpath.dirname, paths))

    def look(self) -> list[str]:
        """Sentences for the result."""
        changed = (path for path, before in self._states.items() if _time(path) != before)
        others = filter(files.lexists, self._made_others)  # not those that were moved aside
        made = [*map(_made_repository, self._made), *map(_made_other, others)]
        return [*made, *map(_changed_main, changed)]

    def _new(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Folders that have become git repositories since: all that existed before, and of those
        that the command made as many as are named. The same for others, by their `.hg`."""
        changed = [f for f, before in self._times.items() if _time(f) != before or not before]
        git, others = [], []
        for folder in changed:
            marks = _marks(folder)
            git += [folder] if self._is_new_repository(folder, marks) else []
            others += self._new_others(folder, marks)
        found = _Found()
        left = _MOST_FOLDERS
        for folder in changed:
            left -= self._walk(folder, found, left)
            if left <= 0 or max(len(found.git), len(found.others)) >= MOST_NAMED:
                break
        return _with_some(git, found.git), _with_some(others, found.others)

    def _new_others(self, folder: str, marks: set[str]) -> list[str]:
        paths = [posixpath.join(folder, name) for name in OTHER_REPOSITORIES if name in marks]
        return [path for path in paths if path not in self._before.others]

    def _is_new_repository(self, folder: str, names: set[str]) -> bool:
        return nested_git.is_repository(names) and folder not in self._before.paths

    def _walk(self, start: str, found: _Found, most: int) -> int:
        """Into `start` and all below it that was not looked into before. Returns the count."""
        pending = deque([(start, 0)])
        looked = 0
        while pending and looked < most:
            folder, depth = pending.popleft()
            looked += 1
            names, inner = _entries(folder)
            if self._is_new_repository(folder, names):
                found.git.append(folder)
            found.others += self._new_others(folder, names)
            if depth < _DEEPEST:
                pending += [(path, depth + 1) for path in inner if path not in self._known]
        return looked


def _with_some(all_of: list[str], some_of: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*sorted(all_of), *sorted(set(some_of))[:MOST_NAMED])))


def _entries(folder: str) -> tuple[set[str], list[str]]:
    """What makes it a repository, by whatever spelling the file system finds it, and folders."""
    inner: list[str] = []
    try:
        with files.scandir(folder) as entries:
            for entry in entries:
                is_dir = entry.is_dir(follow_symlinks=False)
                if is_dir and nested_git.is_step(entry.name, is_dir) and entry.name != ".git":
                    inner.append(entry.path)
    except OSError:
        return set(), []
    return _marks(folder), inner


def _marks(folder: str) -> set[str]:
    return {one for one in nested_git.MARKS if files.lexists(posixpath.join(folder, one))}


def _time(folder: str) -> int:
    """0 where the system does not tell it, or it is gone."""
    try:
        return files.changed_ns(files.lstat(folder))
    except OSError:
        return 0


def _made_repository(folder: str) -> str:
    return (
        f"the command made a git repository in {named(folder)}: look at its config and hooks "
        "before you run git there, or add it to another repository with git add"
    )


def _made_other(path: str) -> str:
    folder, name = posixpath.split(path)
    return (
        f"the command made a repository of {OTHER_REPOSITORIES[name]} in {named(folder)}: look at "
        f"the settings in its {name} before you run {OTHER_REPOSITORIES[name]} there"
    )


def _changed_main(path: str) -> str:
    return (
        f"{named(path)}, which belongs to the main checkout of this worktree, changed while the "
        "command ran: look at `git status` there unless you changed it yourself"
    )
