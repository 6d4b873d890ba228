"""Protected paths during a run: what appears is noticed at once, and moved aside afterwards.

Paths that exist are mounted read-only. For those that do not, nothing may be created on the host,
so they are watched; a command that makes one is killed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sandboxd.linux.workspace_watch import WorkspaceWatch
from sandboxd.policy.plan import SandboxSpec

log = logging.getLogger(__name__)

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
        self._watched_fd = -1

    @property
    def needed(self) -> bool:
        return self._watch is not None

    def start(self, violated: Callable[[], None]) -> None:
        """From now on `violated` is called when a protected path comes into being, until `stop`.

        By the event loop itself: a task for it would cost a tenth of a short command.
        """
        if self._watch is not None:
            self._watched_fd = self._watch.fileno()
            asyncio.get_running_loop().add_reader(self._watched_fd, self._look, violated)

    def _look(self, violated: Callable[[], None]) -> None:
        try:
            found = self._watch.appeared() if self._watch is not None else []
        except OSError:
            log.exception("the protected paths cannot be watched any more: the command is ended")
            self.stop()
            violated()
            return
        if found:
            self._seen.update(found)
            violated()

    def stop(self) -> None:
        """For when the tree is dead. Before `close`, on the event loop's own thread."""
        if self._watched_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._watched_fd)
            self._watched_fd = -1

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
