"""Undo repositories that processes of a persistent sandbox plant in folders of the user, and disarm
those in their own.

What a command left running can make a folder a repository after the command's own end, or change
one that was harmless then. Folders are looked at again and again, by content: the time of a
folder's last change tells nothing about hooks that come later, and a user has few inotify
instances.
"""

from __future__ import annotations

import logging
import posixpath
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio

from sandboxd import event_loop
from sandboxd.platform.current import files
from sandboxd.policy import plan
from sandboxd.policy.data.protected_names import OTHER_REPOSITORIES
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.workspace_guard import running_commands
from sandboxd.workspace_guard.current_platform import (
    disarm_new_git,
    is_led_into,
    remember_repositories,
    undo_planted_git,
    undo_planted_others,
)
from sandboxd.workspace_guard.git.planned_git import PlannedGit, planned_git
from sandboxd.workspace_guard.interface import MovedPath, RememberedRepositories
from sandboxd.workspace_guard.moves import Moves
from sandboxd.workspace_guard.polling import POLL_S, pause_after
from sandboxd.workspace_guard.repositories.new_repositories import NewRepositories, followed
from sandboxd.workspace_guard.run_warnings import PlantedRepositories
from sandboxd.workspace_guard.running_commands import Maker

if TYPE_CHECKING:
    from sandboxd.workspace_guard.held_roots import HeldRoots

log = logging.getLogger(__name__)
Found = dict[str, str | None]
_MOST_LATER = 32


class PlantedWatch:
    """`begin` before processes run, `end` when they are dead: one last look follows.

    A folder that has become a repository while nothing ran is the user's: it is left alone, and
    what it runs programs by stays as it is then. `idle`: no command runs, only what one left.
    """

    def __init__(
        self, nested: Repositories, protected: Sequence[plan.Protected],
        roots: HeldRoots | None = None,
    ) -> None:  # fmt: skip
        self._nested = nested
        self._roots = roots
        own = {*nested.paths, *nested.roots}
        self._folders = tuple(one for one in nested.folders if one not in own)
        # A workspace and git repositories have all names of `WORKSPACE` protected.
        projects = {*nested.paths, *nested.roots[:1], *map(posixpath.dirname, nested.others)}
        self._others = tuple(
            posixpath.join(folder, name)
            for folder in nested.folders if folder not in projects
            for name in OTHER_REPOSITORIES
        )  # fmt: skip
        self._planned = planned_git(protected, nested.git_homes, nested.roots)
        self.idle = True
        self._maker = Maker(nested, protected)
        self._later: list[RememberedRepositories] = []
        self._made: frozenset[str] = frozenset()  # folders, and their .hg, while something ran
        self._search: NewRepositories | None = None
        self._further_git: set[str] = set()  # what that has found, beyond the near folders, too
        self._further_others: set[str] = set()
        self._active = 0
        self._again = False
        self._closed = False
        self._timer: event_loop.Timer | None = None
        self._looking: event_loop.Future[Found] | None = None
        self._found: Found = {}

    def begin(self) -> None:
        if self._nested.folders and not self._is_looking and not self._active:
            self._remember_users_own()
            running_commands.enter(self._maker)
            self._search = NewRepositories(self._nested)
            self._timer = event_loop.call_later(POLL_S, self._look)
        self._active += 1

    def _remember_users_own(self) -> None:
        """Those beyond the limit are judged as if a command had made them."""
        git = [*filter(self._is_users_own, filter(_has_git, self._folders))][:_MOST_LATER]
        others = [*filter(self._is_users_own, filter(files.lexists, self._others))][:_MOST_LATER]
        self._maker.users_own = frozenset((*git, *others))
        if self._later:  # a look of the last command may be under way
            event_loop.run_in_thread(_close, self._later)
        by_git, by_others = self._nested.by_root(git), self._nested.by_root(others)
        later = [
            remember_repositories(
                root, by_git.get(root, ()), by_others.get(root, ()), self._planned
            )
            for root in {*by_git, *by_others}
        ]
        self._later = [one for one in later if one is not None]

    def _is_users_own(self, path: str) -> bool:
        return path not in self._made and not running_commands.may_be_made(path)

    def end(self) -> None:
        self._active -= 1
        self._again = True

    async def settle(self) -> Found:
        """(path: where it is now) of what was undone since the last time; after each command.

        Folders that became repositories in this command are found by its own guard, unless a look
        came first.
        """
        await self._end_of_look()
        further = self._further_git or self._further_others or self._maker.new_folders
        if self._made or further or self._later:
            self._found |= await anyio.to_thread.run_sync(self._undo, True)
        found, self._found = self._found, {}
        return found

    async def close(self) -> Found:
        """Everything is dead."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._end_of_look()
        if self._nested.folders and (self._again or self._active):
            self._found |= await anyio.to_thread.run_sync(self._undo, True)
        running_commands.leave(self._maker)
        await anyio.to_thread.run_sync(_close, self._later)
        return self._found

    async def _end_of_look(self) -> None:
        """The callback of a look adds what it has undone; it runs before this returns."""
        if self._looking is not None:
            await event_loop.wait([self._looking])

    @property
    def _is_looking(self) -> bool:
        return self._timer is not None or self._looking is not None

    def _look(self) -> None:
        self._timer = None
        self._again = self._active > 0
        began = time.monotonic()
        self._looking = event_loop.run_in_thread(self._undo, self.idle)
        self._looking.add_done_callback(lambda done: self._looked(done, began))

    def _looked(self, done: event_loop.Future[Found], began: float) -> None:
        self._looking = None
        try:
            self._found |= done.result()
        except Exception:  # the next look tries again
            log.exception("the folders of %s cannot be looked at", self._nested.roots)
        if self._again and not self._closed:
            self._timer = event_loop.call_later(pause_after(began), self._look)
        else:
            self._maker.is_running = False

    def _undo(self, finished: bool) -> Found:
        """For a thread. `finished`: unfinished operations of git count as left behind.

        After folders were moved the last look alone follows them: it comes soon."""
        if self._roots is None:
            return self._undo_here(finished)
        found: Found = {}
        if self._closed:
            look = partial(self._add_found, found)
            self._roots.follower().look(self._follow, look)
            return found
        try:
            found = self._undo_here(finished) if not self._roots.moved else {}
        except OSError:
            if not self._roots.moved:
                raise
        self._again = self._again or self._roots.moved
        return found

    def _add_found(self, found: Found) -> None:
        found.update(self._undo_here(True))

    def _follow(self, moves: Moves) -> None:
        self._nested = followed(self._nested, moves)
        self._folders, self._others = moves.paths(self._folders), moves.paths(self._others)
        self._planned = self._planned.followed(moves)
        self._maker.follow(self._nested, moves)
        self._made = frozenset(moves.paths(self._made))
        self._further_git = {*moves.paths(self._further_git)}
        self._further_others = {*moves.paths(self._further_others)}
        if self._search is not None:
            self._search.follow(moves)
        for one in self._later:
            one.follow(moves)

    def _undo_here(self, finished: bool) -> Found:
        users_own = self._maker.users_own
        git = {*filter(_may_be_repository, self._folders)} - users_own
        others = {*filter(files.lexists, self._others)} - users_own
        self._made = frozenset(git | others)
        self._look_further()
        git |= self._further_git
        others |= self._further_others
        by_root = self._nested.by_root
        found = PlantedRepositories(by_root(sorted(git)), by_root(sorted(others)), {})
        moved = [*undo_all(found, self._planned)]
        to = self._roots.moves() if self._roots is not None else Moves()
        kept: Found = {}
        for later in self._later:  # by descriptor, so they tell the earlier paths
            for one in later.undo(finished=finished):
                kept[to.told(one.path)] = one.moved_to and to.told(one.moved_to)
        # A running command may still need what it has made in its own folders. Afterwards: a git
        # dir of the user's that it had moved there is back.
        new = sorted(filter(is_led_into, (*self._maker.new_folders,))) if finished else []
        for root, folders in by_root(new).items():
            moved += disarm_new_git(root, folders, self._planned)
        return kept | {one.path: one.moved_to for one in moved}

    def _look_further(self) -> None:
        search = self._search
        changed = search.changed() if search is not None else None
        if search is not None and changed is not None:
            made = search.find(changed)
            new = self._maker.new_folders
            new |= {*made.new_git} - {*self._nested.roots}
            self._further_git |= {*made.git} - self._maker.users_own - new
            self._further_others |= {*made.others} - self._maker.users_own
        for folder in tuple(self._maker.new_folders):
            if not _may_be_repository(folder):
                self._maker.new_folders.discard(folder)
        self._further_git = {*filter(_may_be_repository, self._further_git)}
        self._further_others = {*filter(files.lexists, self._further_others)}


def undo_all(found: PlantedRepositories, planned: PlannedGit) -> list[MovedPath]:
    """Move aside what would run programs. For a thread."""
    moved: list[MovedPath] = []
    for root, folders in found.git.items():
        moved += undo_planted_git(root, folders, planned)
    for root, marks in found.others.items():
        moved += undo_planted_others(root, marks)
    for root, folders in found.new_git.items():
        moved += disarm_new_git(root, folders, planned)
    return moved


def _close(later: list[RememberedRepositories]) -> None:
    for one in later:
        one.close()


def _has_git(folder: str) -> bool:
    return files.lexists(f"{folder}/.git")


def _may_be_repository(folder: str) -> bool:
    return _has_git(folder) or files.lexists(f"{folder}/HEAD")
