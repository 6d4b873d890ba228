"""Looks at the user's folders for as long as processes of a persistent sandbox live.

What a command left running can make a folder a repository after the command's own end, or change
one that was harmless then. Folders are looked at again and again, by content: the time of a
folder's last change tells nothing about hooks that come later, and a user has few inotify
instances.
"""

from __future__ import annotations

import logging
import posixpath
import time
from collections.abc import Iterable

import anyio

from sandboxd import event_loop
from sandboxd.platform.current import files
from sandboxd.policy import plan
from sandboxd.policy.data.protected_names import OTHER_REPOSITORIES
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.workspace_guard.current import undo_others, undo_overtaken
from sandboxd.workspace_guard.interface import MovedPath
from sandboxd.workspace_guard.new_repositories import NewRepositories
from sandboxd.workspace_guard.polling import POLL_S, pause_after
from sandboxd.workspace_guard.run_warnings import Overtaken

log = logging.getLogger(__name__)
Found = dict[str, str | None]


class OvertakenWatch:
    """`begin` before processes run, `end` when they are dead: one last look follows.

    A folder that has become a repository while nothing ran is the user's, and is left alone.
    """

    def __init__(self, nested: Repositories, protected: Iterable[plan.Protected]) -> None:
        self._nested = nested
        own = {*nested.paths, *nested.roots}
        self._folders = tuple(one for one in nested.folders if one not in own)
        # A workspace and git repositories have all names of `WORKSPACE` protected.
        projects = {*nested.paths, *nested.roots[:1], *map(posixpath.dirname, nested.others)}
        self._others = tuple(
            posixpath.join(folder, name)
            for folder in nested.folders if folder not in projects
            for name in OTHER_REPOSITORIES
        )  # fmt: skip
        self._known = frozenset(one.path for one in protected if one.rule in plan.GIT_DIR_RULES)
        self._users_own: frozenset[str] = frozenset()
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
            there = {*filter(_has_git, self._folders), *filter(files.lexists, self._others)}
            self._users_own = frozenset(there - self._made)
            self._search = NewRepositories(self._nested)
            self._timer = event_loop.call_later(POLL_S, self._look)
        self._active += 1

    def end(self) -> None:
        self._active -= 1
        self._again = True

    async def settle(self) -> Found:
        """(path: where it is now) of what was undone since the last time; after each command.

        Folders that became repositories in this command are found by its own guard, unless a look
        came first.
        """
        await self._end_of_look()
        if self._made or self._further_git or self._further_others:
            self._found |= await anyio.to_thread.run_sync(self._undo)
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
            self._found |= await anyio.to_thread.run_sync(self._undo)
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
        self._looking = event_loop.run_in_thread(self._undo)
        self._looking.add_done_callback(lambda done: self._looked(done, began))

    def _looked(self, done: event_loop.Future[Found], began: float) -> None:
        self._looking = None
        try:
            self._found |= done.result()
        except Exception:  # the next look tries again
            log.exception("the folders of %s cannot be looked at", self._nested.roots)
        if self._again and not self._closed:
            self._timer = event_loop.call_later(pause_after(began), self._look)

    def _undo(self) -> Found:
        """For a thread."""
        git = {*filter(_may_be_repository, self._folders)} - self._users_own
        others = {*filter(files.lexists, self._others)} - self._users_own
        self._made = frozenset(git | others)
        self._look_further()
        git |= self._further_git
        others |= self._further_others
        by_root = self._nested.by_root
        moved = undo_all(Overtaken(by_root(sorted(git)), by_root(sorted(others))), self._known)
        return {one.path: one.moved_to for one in moved}

    def _look_further(self) -> None:
        search = self._search
        changed = search.changed() if search is not None else None
        if search is not None and changed is not None:
            made = search.find(changed)
            self._further_git |= {*made.git} - self._users_own
            self._further_others |= {*made.others} - self._users_own
        self._further_git = {*filter(_may_be_repository, self._further_git)}
        self._further_others = {*filter(files.lexists, self._further_others)}


def undo_all(found: Overtaken, known: frozenset[str]) -> list[MovedPath]:
    """Move aside what would run programs. For a thread. `known`: protected git dirs."""
    moved: list[MovedPath] = []
    for root, folders in found.git.items():
        moved += undo_overtaken(root, folders, known)
    for root, marks in found.others.items():
        moved += undo_others(root, marks)
    return moved


def _has_git(folder: str) -> bool:
    return files.lexists(f"{folder}/.git")


def _may_be_repository(folder: str) -> bool:
    return _has_git(folder) or files.lexists(f"{folder}/HEAD")
