"""Which watch for protected paths this platform has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence

from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard.interface import MovedPath, Watch

if sys.platform == "win32":
    from sandboxd.windows.access_lists.pinned_parents import pinned
    from sandboxd.workspace_guard import overtaken_by_name
    from sandboxd.workspace_guard.directory_watch import DirectoryWatch

    def open_watch(protected: Collection[Protected], writable: Collection[str]) -> Watch:
        return DirectoryWatch(tuple(protected))

    def undo_overtaken(
        workspace: str, folders: Iterable[str], known: frozenset[str]
    ) -> Sequence[MovedPath]:
        return overtaken_by_name.undo(workspace, folders, pinned)

    def remember_kept(workspace: str) -> Callable[[], bool] | None:
        return None  # not written again here

    def born_ns(folder: str) -> int | None:
        return None

    def open_again(root: str, folder: str) -> bool:
        return False

    def undo_others(root: str, marks: Iterable[str]) -> Sequence[MovedPath]:
        return overtaken_by_name.undo_others(root, marks, pinned)

else:
    from sandboxd.linux.birth_time import birth_ns_of as born_ns
    from sandboxd.workspace_guard.absent_paths_watch import AbsentPathsWatch
    from sandboxd.workspace_guard.git.overtaken import undo as undo_overtaken
    from sandboxd.workspace_guard.kept_copy import remember_kept
    from sandboxd.workspace_guard.other_repositories import undo as undo_others
    from sandboxd.workspace_guard.reopening import open_again

    def open_watch(protected: Collection[Protected], writable: Collection[str]) -> Watch:
        """`writable`: all folders that may be written, also those inside of protected ones."""
        return AbsentPathsWatch(tuple(protected), tuple(writable))


__all__ = [
    "born_ns", "open_again", "open_watch", "remember_kept", "undo_others", "undo_overtaken",
]  # fmt: skip
