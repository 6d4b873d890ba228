"""A protected file that has another name, by which a command can write it: no mount covers that.

What was written is undone. The file then has the earlier content under its protected name, and is
no longer the same as the other one.
"""

from __future__ import annotations

from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard import snapshot
from sandboxd.workspace_guard.dirfd import find
from sandboxd.workspace_guard.quarantine.quarantine import Offence, put_back_below
from sandboxd.workspace_guard.snapshot import Node, SnapshotBudget

_MOST_BYTES = 4 << 20
# Of running commands, by the file's path, in the order of their starts.
_running: dict[str, list[LinkedFile]] = {}


class LinkedFile:
    """Make it before the command starts. With overlapping commands the content before the first of
    them counts."""

    def __init__(self, root: int, one: Protected) -> None:
        self._root = root
        self._one = one
        elder = next(iter(_running.get(one.path, ())), None)
        self._before: Node | None = elder._before if elder is not None else self._keep()

    def _keep(self) -> Node | None:
        with find(self._root, self._one.root, self._one.path) as entry:
            if entry is None or entry.path != self._one.path:
                return None
            return snapshot.keep(entry.parent, entry.name, SnapshotBudget(1, _MOST_BYTES))

    def begin(self) -> None:
        _running.setdefault(self._one.path, []).append(self)

    def rest(self) -> None:
        others = [one for one in _running.pop(self._one.path, ()) if one is not self]
        if others:
            _running[self._one.path] = others

    @property
    def unchanged(self) -> bool:
        """A file that was exchanged is the user's: a mount keeps commands from doing that."""
        before = self._before
        with find(self._root, self._one.root, self._one.path) as entry:
            if before is None or entry is None or entry.status.st_ino != before.status.st_ino:
                return True
            return snapshot.is_untouched(entry.parent, entry.name, before)

    @property
    def needs_thread(self) -> bool:
        return False

    def look(self, *, finished: bool) -> list[Offence]:
        if self.unchanged:
            return []
        path = self._one.path
        with find(self._root, self._one.root, path) as entry:
            same = self._before is None or (
                entry is not None and snapshot.same(entry.parent, entry.name, self._before)
            )
        if same:
            return []
        undo = put_back_below(self._root, self._one.root, path, self._before)
        return [Offence(path, True, undo, "it was written by another name")]

    def close(self) -> None:
        self.rest()
