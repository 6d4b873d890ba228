"""Protected files where nothing can be mounted over them: noted before a run, checked after it.

For the landlock backend, whose rules cannot take a file out of a writable folder. A change is not
prevented; it is undone and reported.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from sandboxd.linux import kept_tree
from sandboxd.linux.descent import Spot, find, nearest, open_root
from sandboxd.linux.kept_tree import Budget, Node
from sandboxd.linux.quarantine import Quarantine
from sandboxd.policy.plan import Protected


@dataclass(frozen=True, slots=True)
class Changed:
    """A protected path that the run changed. `moved_to`: where the changed version is now."""

    path: str
    moved_to: str | None
    restored: bool


class ProtectedSnapshot:
    """Make it before the command starts; `verify()` when its tree is dead; then `close()`.

    `unverified` names paths that are too large to be looked at as a whole.
    """

    def __init__(self, protected: Sequence[Protected]) -> None:
        self._kept: list[tuple[Protected, Node]] = []
        self._roots: dict[str, int] = {}
        budget = Budget()
        try:
            for one in protected:
                if one.present:
                    self._keep(one, budget)
        except BaseException:
            self.close()
            raise
        self.unverified = tuple(one.path for one, node in self._kept if not node.seen)

    def verify(self) -> list[Changed]:
        """Every protected path that is not what it was, put back where that is possible."""
        changed: list[Changed] = []
        for one, before in self._kept:
            with self._find(one) as spot:
                there = spot is not None and spot.path == one.path
                if not (there and spot and kept_tree.same(spot.parent, spot.name, before)):
                    changed.append(self._undo(one, before, spot))
        return changed

    def close(self) -> None:
        for fd in self._roots.values():
            os.close(fd)
        self._roots.clear()

    def _keep(self, one: Protected, budget: Budget) -> None:
        if one.root not in self._roots:
            self._roots[one.root] = open_root(one.root)
        with self._find(one) as spot:
            if spot is not None and spot.path == one.path:
                self._kept.append((one, kept_tree.keep(spot.parent, spot.name, budget)))

    def _find(self, one: Protected) -> contextlib.AbstractContextManager[Spot | None]:
        return find(self._roots[one.root], one.root, one.path)

    def _undo(self, one: Protected, before: Node, spot: Spot | None) -> Changed:
        if not before.whole:
            return Changed(one.path, None, restored=False)
        root = self._roots[one.root]
        moved_to = None
        if spot is not None:
            quarantine = Quarantine(root, one.root)
            moved_to = quarantine.take(spot).moved_to
            quarantine.close()
        return Changed(one.path, moved_to, restored=_write(root, one, before))


def _write(root: int, one: Protected, before: Node) -> bool:
    folder, name, is_parent = nearest(root, one.root, one.path)
    try:
        if not is_parent:
            return False  # the folder that it was in is gone
        kept_tree.write(folder, name, before)
    except OSError:
        return False
    finally:
        os.close(folder)
    return True
