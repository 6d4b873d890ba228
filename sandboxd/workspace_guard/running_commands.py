"""Who may have made what is there when a command starts: another one that still runs.

That is not the user's: it is undone when the other command ends, and must not come back. The same
holds for repositories that a persistent sandbox finds, which is older than they are.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from functools import cached_property

from msgspec.structs import replace

from sandboxd.policy.paths.within import within
from sandboxd.policy.plan import GIT_DIR_RULES, Protected
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.workspace_guard.moves import Moves
from sandboxd.workspace_guard.run_clock import RunClock


class Maker:
    """A command, or a persistent sandbox, with what was there before it. `users_own`: what the user
    has made since: folders of git repositories, and the `.hg` and the like. `new_folders`: of
    repositories that commands have made since."""

    def __init__(self, before: Repositories, protected: Iterable[Protected]) -> None:
        self.users_own: frozenset[str] = frozenset()
        self.new_folders: set[str] = set()
        self.clock = RunClock()
        self.is_running = False
        self._before = before
        self._protected = protected

    def follow(self, before: Repositories, moves: Moves) -> None:
        """Folders were moved."""
        self._before = before
        self._protected = [*moved_paths(self._protected, moves)]
        self.users_own = frozenset(moves.paths(self.users_own))
        self.new_folders = {*moves.paths(self.new_folders)}
        for name in ("_git_dirs", "_there"):
            self.__dict__.pop(name, None)

    def writes_to(self, folder: str) -> bool:
        return any(within(folder, one) or within(one, folder) for one in self._before.roots)

    def may_have_made(self, path: str) -> bool:
        before = self._before
        if path in self.users_own or path in (*before.paths, *before.others):
            return False
        if not any(within(path, root) for root in before.roots):
            return False
        return path not in self._git_dirs and self._there.isdisjoint(_with_parents(path))

    @cached_property
    def _git_dirs(self) -> frozenset[str]:
        return frozenset(one.path for one in self._protected if one.rule in GIT_DIR_RULES)

    @cached_property
    def _there(self) -> frozenset[str]:
        return frozenset(one.path for one in self._protected if one.present)


def moved_paths(protected: Iterable[Protected], moves: Moves) -> Iterator[Protected]:
    for one in protected:
        path, root = moves.path(one.path), moves.path(one.root)
        if path is not None and root is not None:
            yield replace(one, path=path, root=root)


_makers: list[Maker] = []


def enter(maker: Maker) -> None:
    """It starts to run."""
    maker.clock = RunClock()
    maker.is_running = True
    if maker not in _makers:
        _makers.append(maker)


def running_in(roots: Iterable[str]) -> list[Maker]:
    """That write to one of these folders."""
    return [one for one in _makers if one.is_running and any(map(one.writes_to, roots))]


def leave(maker: Maker) -> None:
    if maker in _makers:
        _makers.remove(maker)


def may_be_made(path: str) -> bool:
    """By a command that runs now."""
    return any(one.is_running and one.may_have_made(path) for one in tuple(_makers))


def is_users_own(path: str) -> bool:
    """For a command in a persistent sandbox."""
    return any(one.is_running and path in one.users_own for one in tuple(_makers))


def note_new_folders(folders: Iterable[str]) -> None:
    """For persistent sandboxes: a command made a git repository in each of these."""
    for folder in folders:
        for one in tuple(_makers):
            if one.writes_to(folder):
                one.new_folders.add(folder)


def is_in_new_folder(path: str) -> bool:
    """For a command in a persistent sandbox: an earlier one has made this repository."""
    return any(path in one.new_folders for one in tuple(_makers))


def _with_parents(path: str) -> list[str]:
    found = [path]
    while found[-1] != posixpath.dirname(found[-1]):
        found.append(posixpath.dirname(found[-1]))
    return found
