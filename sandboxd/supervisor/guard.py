"""Protected paths during a run: what appears is noticed at once, and moved aside afterwards.

Paths that exist are mounted read-only. For those that do not, nothing may be created on the host,
so they are watched; a command that makes one is killed.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from sandboxd.linux.workspace_watch import WorkspaceWatch
from sandboxd.policy.plan import SandboxSpec

Protected = tuple[tuple[str, str | None], ...]


class Guard:
    """Made before the command starts; `conclude` once its whole tree is dead, then `close`.

    Closing takes 5 to 20 ms: the kernel waits until nobody can be at the inotify marks any more.
    So it is done in a thread, off the request's path.
    """

    def __init__(self, spec: SandboxSpec | None) -> None:
        protected = spec.protected if spec is not None else ()
        missing = any(not one.present for one in protected)
        self._watch = WorkspaceWatch(protected) if missing else None
        self._seen: set[str] = set()

    @property
    def needed(self) -> bool:
        return self._watch is not None

    def start(self, violated: Callable[[], None], tasks: TaskGroup) -> anyio.CancelScope:
        """Watch as a task; cancel the scope when the tree is dead."""
        scope = anyio.CancelScope()
        if self.needed:
            tasks.start_soon(self.watch, violated, scope)
        return scope

    async def watch(self, violated: Callable[[], None], scope: anyio.CancelScope) -> None:
        """Calls `violated` when a protected path comes into being."""
        with scope:
            while self._watch is not None:
                await anyio.wait_readable(self._watch.fileno())
                found = self._watch.appeared()
                if found:
                    self._seen.update(found)
                    violated()

    def conclude(self) -> Protected:
        """(path, where it is now) of everything protected that appeared."""
        if self._watch is None:
            return ()
        self._seen.update(self._watch.appeared())
        moved = {one.path: one.moved_to for one in self._watch.sweep()}
        came_and_went: dict[str, str | None] = dict.fromkeys(self._seen - moved.keys())
        return tuple(sorted({**came_and_went, **moved}.items()))

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


NO_GUARD = Guard(None)
