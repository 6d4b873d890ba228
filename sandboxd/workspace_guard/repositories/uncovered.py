"""Repositories in folders of the user that were made after a persistent sandbox: its mounts do not
cover them. What they run programs by is remembered before something runs in the sandbox, and
written back if it changes meanwhile.

Somebody else made them: the user, or a command in another sandbox if they are harmless.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import threading
from collections.abc import Iterable, Iterator, Sequence

from sandboxd.policy.data import git_work_names
from sandboxd.policy.data.protected_names import GIT_DIR
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.plan import Protected
from sandboxd.policy.protected import git_config, git_links
from sandboxd.policy.protected.nested_git import exec_paths
from sandboxd.workspace_guard.dirfd import find, open_folder, open_root, read_file
from sandboxd.workspace_guard.git import judge
from sandboxd.workspace_guard.git.git_dir import GitDir
from sandboxd.workspace_guard.git.planned_git import PlannedGit
from sandboxd.workspace_guard.git.repository import remotes_below
from sandboxd.workspace_guard.interface import MovedPath
from sandboxd.workspace_guard.moves import Moves
from sandboxd.workspace_guard.protected_snapshot import ProtectedSnapshot
from sandboxd.workspace_guard.quarantine import judged_file
from sandboxd.workspace_guard.quarantine.quarantine import Quarantine
from sandboxd_proto.errors import PathDenied

_IN_GIT_DIR = (*GIT_DIR, *git_work_names.OLD_REMOTES, "info/attributes")


class UncoveredRepositories:
    """`git`: folders with a `.git`. `others`: a `.hg` and the like. All of them below `root`."""

    def __init__(
        self, root: str, git: Sequence[str], others: Iterable[str], planned: PlannedGit
    ) -> None:
        self._root = root
        self._planned = planned
        self._lock = threading.Lock()
        self._is_open = True
        self._open = contextlib.ExitStack()
        self._folder = open_root(root)
        self._open.callback(os.close, self._folder)
        self._git_dirs = [*self._judged(git)]
        paths = [*(path for one in git for path in _git_paths(one, root))]
        paths += [path for one in others for path in exec_paths(one)]
        self._absent = [path for path in paths if not os.path.lexists(path)]
        there = [path for path in paths if path not in self._absent]
        self._before = ProtectedSnapshot([Protected(path, root, present=True) for path in there])

    def _judged(self, folders: Iterable[str]) -> Iterator[GitDir]:
        for git_dir in filter(None, map(git_links.git_dir_of, folders)):
            if is_below(git_dir, self._root) and os.path.isdir(git_dir):
                one = Protected(git_dir, self._root, present=False, is_dir=True, rule="git_dir")
                with contextlib.suppress(PathDenied):  # it cannot be opened
                    judged = GitDir(self._folder, one, self._planned)
                    self._open.callback(judged.close)
                    judged.begin()
                    yield judged

    def undo(self, *, finished: bool) -> list[MovedPath]:
        """For a thread."""
        with self._lock:
            if not self._is_open:
                return []
            quarantine = Quarantine(self._folder, self._root)
            try:
                return [*self._undone(quarantine, finished=finished)]
            finally:
                quarantine.close()

    def follow(self, moves: Moves) -> None:
        with self._lock:
            self._planned = self._planned.followed(moves)
            for one in self._git_dirs:
                one.follow(moves)

    def close(self) -> None:
        """For a thread."""
        with self._lock:
            self._is_open = False
            self._before.close()
            self._open.close()

    def _undone(self, quarantine: Quarantine, *, finished: bool) -> Iterator[MovedPath]:
        changed = self._before.verify(self._is_harmless)
        # Not those that went with their repository.
        yield from (one for one in changed if one.moved_to or self._is_there(one.path))
        for path in self._absent:
            with find(self._folder, self._root, path) as entry:
                if entry is not None:
                    yield quarantine.take(entry)
        for one in self._git_dirs:
            if self._is_there(one.path):
                one.forget()
                yield from judged_file.undo(one, one.path, quarantine, finished=finished)

    def _is_there(self, path: str) -> bool:
        with find(self._folder, self._root, path) as entry:
            return entry is not None and entry.path == path

    def _is_harmless(self, path: str, before: bytes) -> bool:
        """Settings that run no program are git's daily work, and the user's."""
        git_dir, name = posixpath.split(path)
        if name != "config":
            return False
        folder = open_folder(self._folder, self._root, git_dir)
        if folder is None:
            return False
        try:
            now = read_file(folder, name, git_config.MAX_BYTES)
        finally:
            os.close(folder)
        if now is None or judge.judge_config(before, now):
            return False
        remotes = [remotes_below(self._planned.writable, git_dir, one) for one in (before, now)]
        return remotes[1] <= remotes[0]


def _git_paths(folder: str, root: str) -> Iterator[str]:
    pointer = posixpath.join(folder, ".git")
    git_dir = git_links.git_dir_of(folder) or folder
    if os.path.lexists(pointer) and git_dir != pointer:
        yield pointer  # a file, or a link
    if within(git_dir, root):
        yield from (posixpath.join(git_dir, name) for name in _IN_GIT_DIR)
