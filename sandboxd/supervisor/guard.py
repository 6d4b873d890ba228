"""Protected paths during a run: what appears is noticed at once, and moved aside afterwards.

Paths that exist are mounted read-only. For those that do not, nothing may be created on the host,
so they are watched; a command that makes one is killed.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from sandboxd.linux.workspace_watch import WorkspaceWatch
from sandboxd.policy.plan import SandboxSpec

Protected = tuple[tuple[str, str | None], ...]


class Guard:
    """Made before the command starts; `conclude` once its whole tree is dead, then it is closed."""

    def __init__(self, spec: SandboxSpec) -> None:
        missing = any(not one.present for one in spec.protected)
        self._watch = WorkspaceWatch(spec.protected) if missing else None
        self._seen: set[str] = set()

    @property
    def needed(self) -> bool:
        return self._watch is not None

    async def watch(self, violated: Callable[[], None]) -> None:
        """Calls `violated` when a protected path comes into being. Ends when cancelled."""
        assert self._watch is not None
        while True:
            await anyio.wait_readable(self._watch.fileno())
            found = self._watch.appeared()
            if found:
                self._seen.update(found)
                violated()

    def conclude(self) -> Protected:
        """(path, where it is now) of everything protected that appeared. Closes the guard."""
        if self._watch is None:
            return ()
        watch, self._watch = self._watch, None
        try:
            self._seen.update(watch.appeared())
            moved = {one.path: one.moved_to for one in watch.sweep()}
        finally:
            watch.close()
        came_and_went: dict[str, str | None] = dict.fromkeys(self._seen - moved.keys())
        return tuple(sorted({**came_and_went, **moved}.items()))

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
