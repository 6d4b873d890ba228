"""Protected files that cannot be mounted read-only: recorded before a run, checked after it.

For the landlock backend, whose rules cannot take a file out of a writable folder. A change is not
prevented; it is undone and reported.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard import running_commands, snapshot
from sandboxd.workspace_guard.dirfd import (
    Entry,
    enter,
    find,
    list_names,
    nearest,
    open_folder,
    open_planned,
)
from sandboxd.workspace_guard.quarantine.quarantine import Quarantine
from sandboxd.workspace_guard.snapshot import Node, SnapshotBudget

_LIGHT_ENTRIES = 256
_OWN_ENTRIES, _OWN_BYTES = 64, 64 << 10


class Changed(msgspec.Struct, frozen=True):
    """A protected path that the run changed. `moved_to`: where the changed version is now."""

    path: str
    moved_to: str | None
    error: str = ""


def never(_path: str, _before: bytes) -> bool:
    return False


class ProtectedSnapshot:
    """Make it before the command starts; `verify()` when its tree is dead; then `close()`.

    `writable` are folders that may be written although they lie in a protected one.
    `unverified` names paths that are too large to be looked at as a whole. `needs_thread`: a look
    takes too long for the event loop. `elders`: snapshots of commands that run already, oldest
    first. Their content is used, because these commands may have changed a file since.
    """

    def __init__(
        self,
        protected: Sequence[Protected],
        writable: Iterable[str] = (),
        elders: Sequence[ProtectedSnapshot] = (),
    ) -> None:
        self._kept: list[tuple[Protected, Node]] = []
        self._levels: list[tuple[Protected, frozenset[str]]] = []
        self._nodes = {one.path: node for elder in elders[::-1] for one, node in elder._kept}
        self._names = {one.path: names for elder in elders[::-1] for one, names in elder._levels}
        self._writable = tuple(writable)
        self._doubtful: set[str] = set()  # another command may have made it: not written back
        self._roots: dict[str, int] = {}
        self._entries = 0
        budget = SnapshotBudget()
        try:
            for one in protected:
                if one.present:
                    self._keep(one, budget)
        except BaseException:
            self.close()
            raise
        self.needs_thread = self._entries > _LIGHT_ENTRIES
        self.unverified = tuple(one.path for one, node in self._kept if not node.seen)

    def verify(self, permitted: Callable[[str, bytes], bool] = never) -> list[Changed]:
        """The protected paths that changed. They are restored where that is possible.

        `permitted` is asked with a path and the content that it had whether it may be what it is.
        """
        changed: list[Changed] = []
        for one, before in self._kept:
            if before.data is not None and permitted(one.path, before.data):
                continue
            with self._find(one) as entry:
                there = entry is not None and entry.path == one.path
                if entry is None and one.path in self._doubtful:
                    continue  # undone with the command that made it
                if not (there and entry and snapshot.same(entry.parent, entry.name, before)):
                    changed.append(self._undo(one, before, entry))
        for one, names in self._levels:
            changed += self._added(one, names)
        return changed

    def close(self) -> None:
        for fd in self._roots.values():
            os.close(fd)
        self._roots.clear()

    def _keep(self, one: Protected, budget: SnapshotBudget) -> None:
        if one.root not in self._roots:
            self._roots[one.root] = open_planned(one.root)
        with self._find(one) as entry:
            if entry is not None and entry.path == one.path:
                if entry.is_dir and self._opens_into(one.path):
                    self._keep_level(one, entry, budget)
                    return
                known = self._nodes.get(one.path)
                if known is None and running_commands.may_be_made(one.path):
                    self._doubtful.add(one.path)
                self._kept.append((one, known or self._read(entry, budget)))

    def _read(self, entry: Entry, budget: SnapshotBudget) -> Node:
        """Each path has a share of its own: none that a command made uses up that of others."""
        own = SnapshotBudget(_OWN_ENTRIES, _OWN_BYTES)
        node = snapshot.keep(entry.parent, entry.name, own)
        self._entries += _OWN_ENTRIES - own.entries
        if not node.whole:
            left = budget.entries
            node = snapshot.keep(entry.parent, entry.name, budget)
            self._entries += left - budget.entries
        return node

    def _opens_into(self, path: str) -> bool:
        below = path.rstrip("/") + "/"
        return any(folder.startswith(below) for folder in self._writable)

    def _keep_level(self, one: Protected, entry: Entry, budget: SnapshotBudget) -> None:
        """A folder with writable ones in it: each of its entries is kept by itself."""
        folder = enter(entry.parent, entry.name)
        names = list_names(folder) if folder is not None else None
        if folder is not None:
            os.close(folder)
        self._levels.append((one, self._names.get(one.path, frozenset(names or ()))))
        for name in names or ():
            path = os.path.join(one.path, name)
            if path not in self._writable:
                self._keep(replace(one, path=path), budget)

    def _added(self, one: Protected, before: frozenset[str]) -> list[Changed]:
        """Move aside the names that were added to such a folder."""
        folder = open_folder(self._roots[one.root], one.root, one.path)
        if folder is None:
            return [Changed(one.path, None)]
        try:
            new = [name for name in list_names(folder) or () if name not in before]
        finally:
            os.close(folder)
        changed: list[Changed] = []
        for name in new:
            path = os.path.join(one.path, name)
            quarantine = Quarantine(self._roots[one.root], one.root)
            with self._find(replace(one, path=path)) as entry:
                if entry is not None:
                    changed.append(Changed(path, quarantine.take(entry).moved_to))
            quarantine.close()
        return changed

    def _find(self, one: Protected) -> contextlib.AbstractContextManager[Entry | None]:
        return find(self._roots[one.root], one.root, one.path)

    def _undo(self, one: Protected, before: Node, entry: Entry | None) -> Changed:
        if not before.whole:
            return Changed(one.path, None)
        root = self._roots[one.root]
        moved_to = None
        if entry is not None:
            quarantine = Quarantine(root, one.root)
            moved_to = quarantine.take(entry).moved_to
            quarantine.close()
        if one.path not in self._doubtful:
            _write(root, one, before)
        return Changed(one.path, moved_to)


def _write(root: int, one: Protected, before: Node) -> None:
    folder, name, is_parent = nearest(root, one.root, one.path)
    try:
        if is_parent:  # otherwise the folder that it was in is gone
            with contextlib.suppress(OSError):
                snapshot.write(folder, name, before)
    finally:
        os.close(folder)
