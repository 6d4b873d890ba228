"""A work tree's top folder that becomes a git dir itself, which git would then find.

Git takes a folder for a git dir if it has a valid `HEAD` and folders `objects` and `refs`, or a
`commondir` that leads to them. A project may have such names as long as that is not so.
"""

from __future__ import annotations

import os
import stat

from sandboxd.linux.openat import changed_error
from sandboxd.policy.plan import Protected
from sandboxd.policy.protected.git_dir import is_head_content
from sandboxd.workspace_guard import snapshot
from sandboxd.workspace_guard.dirfd import open_folder, read_file, restore_mode, stat_at
from sandboxd.workspace_guard.quarantine.quarantine import (
    Moved,
    Offence,
    Quarantine,
    Undo,
    put_back,
)
from sandboxd.workspace_guard.snapshot import Node, SnapshotBudget

_NAMES = ("HEAD", "commondir", "config", "objects", "refs")
_SMALL = 4096


class TopFolder:
    def __init__(self, root: int, one: Protected) -> None:
        folder = open_folder(root, one.root, one.path)
        if folder is None:
            raise changed_error(one.path, "it is no folder any more")
        self._folder = folder
        self.path = one.path
        self._mode = os.fstat(folder).st_mode
        # For folders only their existence counts: their content is the project's.
        self._before: dict[str, Node] = {}
        for name in _NAMES:
            node = self._keep(name)
            if node is not None:
                self._before[name] = node
        if self._is_git_dir():  # it was none in the plan: another command made it one just now
            self._before.pop("HEAD", None)

    def _keep(self, name: str) -> Node | None:
        status = stat_at(self._folder, name)
        if status is None:
            return None
        if stat.S_ISDIR(status.st_mode):
            return Node(status, whole=False)
        return snapshot.keep(self._folder, name, SnapshotBudget(entries=1, bytes=_SMALL))

    @property
    def unchanged(self) -> bool:
        """A `HEAD` that was there can be written without an event."""
        return not self._is_git_dir()

    @property
    def needs_thread(self) -> bool:
        return False

    def look(self, *, finished: bool) -> list[Offence]:
        if finished:
            restore_mode(self._folder, self._mode)
        if not self._is_git_dir():
            return []
        return [Offence(self.path, True, self._undo(), "it has become a git dir itself")]

    def close(self) -> None:
        os.close(self._folder)

    def _is_git_dir(self) -> bool:
        if not self._is_head():
            return False
        if self._mode_of("commondir") is not None:
            return True
        return all(self._leads_to_folder(name) for name in ("objects", "refs"))

    def _is_head(self) -> bool:
        mode = self._mode_of("HEAD")
        if mode is None or stat.S_ISDIR(mode):
            return False
        if not stat.S_ISREG(mode):
            return True
        data = read_file(self._folder, "HEAD", 1 << 20)
        return data is not None and is_head_content(data)

    def _mode_of(self, name: str) -> int | None:
        found = stat_at(self._folder, name)
        return found.st_mode if found is not None else None

    def _leads_to_folder(self, name: str) -> bool:
        mode = self._mode_of(name)
        return mode is not None and (stat.S_ISDIR(mode) or stat.S_ISLNK(mode))

    def _undo(self) -> Undo:
        """Undo each name that was added or changed."""

        def undo(quarantine: Quarantine) -> Moved:
            moved = Moved(self.path, None)
            for name in _NAMES:
                before = self._before.get(name)
                if self._is_as_before(name, before):
                    continue
                path = os.path.join(self.path, name)
                moved = put_back(self._folder, name, path, before)(quarantine)
            return Moved(self.path, moved.moved_to, moved.error)

        return undo

    def _is_as_before(self, name: str, before: Node | None) -> bool:
        mode = self._mode_of(name)
        if before is None or mode is None:
            return before is None and mode is None
        if before.kind == stat.S_IFDIR:
            return stat.S_ISDIR(mode)
        return snapshot.same(self._folder, name, before)
