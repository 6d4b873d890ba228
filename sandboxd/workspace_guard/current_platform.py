"""The implementation of the guard for this operating system."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from sandboxd.policy.plan import Protected, SandboxSpec
from sandboxd.workspace_guard.git.planned_git import PlannedGit
from sandboxd.workspace_guard.interface import MovedPath, RememberedRepositories, Watch

if sys.platform == "win32":
    from sandboxd.windows.access_lists.pinned_parents import pinned
    from sandboxd.workspace_guard.by_name import planted_repositories
    from sandboxd.workspace_guard.by_name.directory_watch import DirectoryWatch

    def remember_repositories(
        root: str, git: Sequence[str], others: Iterable[str], planned: PlannedGit
    ) -> RememberedRepositories | None:
        return None  # not protected here

    def open_watch(
        protected: Collection[Protected], writable: Collection[str], git_homes: tuple[str, ...]
    ) -> Watch:
        return DirectoryWatch(tuple(protected))

    def undo_planted_git(
        workspace: str, folders: Iterable[str], planned: PlannedGit
    ) -> Sequence[MovedPath]:
        return planted_repositories.undo(workspace, folders, pinned)

    def disarm_new_git(
        workspace: str, folders: Iterable[str], planned: PlannedGit
    ) -> Sequence[MovedPath]:
        return ()  # only named here

    def is_led_into(folder: str) -> bool:
        return False

    def remember_kept(workspace: str) -> Callable[[], bool] | None:
        return None  # not written again here

    def born_ns(folder: str) -> int | None:
        return None

    def restore_access(root: str, folder: str) -> bool:
        return False

    def undo_planted_others(root: str, marks: Iterable[str]) -> Sequence[MovedPath]:
        return planted_repositories.undo_planted_others(root, marks, pinned)

else:
    from sandboxd.linux.birth_time import birth_ns_of as born_ns
    from sandboxd.workspace_guard.quarantine.backup import remember_kept
    from sandboxd.workspace_guard.repositories.disarm import disarm as disarm_new_git
    from sandboxd.workspace_guard.repositories.disarm import is_led_into
    from sandboxd.workspace_guard.repositories.planted_git import undo as undo_planted_git
    from sandboxd.workspace_guard.repositories.planted_non_git import undo as undo_planted_others
    from sandboxd.workspace_guard.repositories.uncovered import UncoveredRepositories
    from sandboxd.workspace_guard.restore_access import restore_access
    from sandboxd.workspace_guard.watch.absent_paths import AbsentPathsWatch

    def remember_repositories(
        root: str, git: Sequence[str], others: Iterable[str], planned: PlannedGit
    ) -> RememberedRepositories | None:
        return UncoveredRepositories(root, git, others, planned)

    def open_watch(
        protected: Collection[Protected], writable: Collection[str], git_homes: tuple[str, ...]
    ) -> Watch:
        """`writable`: all folders that may be written, also those inside of protected ones."""
        return AbsentPathsWatch(tuple(protected), tuple(writable), git_homes)


if TYPE_CHECKING or sys.platform == "linux":
    from sandboxd.workspace_guard.held_roots import HeldRoots

if sys.platform == "linux":

    def hold_roots(spec: SandboxSpec) -> HeldRoots | None:
        writable = (one for one in spec.grants if one.access == "write" and one.origin != "pin")
        return HeldRoots(writable, {one.root for one in spec.protected})

else:

    def hold_roots(spec: SandboxSpec) -> HeldRoots | None:
        """A sandbox's rules go by path here, or a folder in use is not moved."""
        return None


__all__ = [
    "born_ns",
    "disarm_new_git",
    "hold_roots",
    "is_led_into",
    "open_watch",
    "remember_kept",
    "remember_repositories",
    "restore_access",
    "undo_planted_git",
    "undo_planted_others",
]  # fmt: skip
