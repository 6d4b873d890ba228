"""Protected paths during a run: what appears is noticed at once, and moved aside afterwards.

Paths that exist are mounted read-only. For those that do not, nothing may be created on the host,
so they are watched; a command that makes one is killed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from sandboxd.linux.workspace_watch import WorkspaceWatch
from sandboxd.policy.plan import SandboxSpec

log = logging.getLogger(__name__)

Protected = tuple[tuple[str, str | None], ...]


KEEP_S = 5.0  # it holds the workspace open: a file system could not be unmounted meanwhile
MOST_KEPT = 16  # a user has 128 inotify instances


class Guard:
    """Ready before the command starts; `conclude` once its whole tree is dead."""

    def __init__(self, spec: SandboxSpec | None) -> None:
        protected = spec.protected if spec is not None else ()
        missing = any(not one.present for one in protected)
        self.spec = spec
        self.kept_at = 0.0
        self._watch = WorkspaceWatch(protected) if missing else None
        self._seen: set[str] = set()
        self._watched_fd = -1

    @property
    def needed(self) -> bool:
        return self._watch is not None

    @property
    def calm(self) -> bool:
        """Whether nothing has happened where it watches, so that it is as good as a new one."""
        return self._watch is not None and not self._seen and self._watch.calm

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
        if self._watch is None or self.calm:
            return ()
        self._seen.update(self._watch.appeared())
        moved = {one.path: one.moved_to for one in self._watch.sweep()}
        came_and_went: dict[str, str | None] = dict.fromkeys(self._seen - moved.keys())
        return tuple(sorted({**came_and_went, **moved}.items()))

    def close(self) -> None:
        """Takes 5 to 20 ms: the kernel waits until nobody can be at the inotify marks any more."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


NO_GUARD = Guard(None)


class Guards:
    """One for each running command. A guard that saw nothing is kept for the next command of the
    same spec: making one takes as long as a short command. `dispose` runs work in a thread."""

    def __init__(self, dispose: Callable[[Callable[[], None]], None]) -> None:
        self._dispose = dispose
        self._kept: list[Guard] = []
        self._timer: asyncio.TimerHandle | None = None

    def take(self, spec: SandboxSpec) -> Guard:
        for guard in self._kept:
            if guard.spec is spec or guard.spec == spec:
                self._kept.remove(guard)
                if guard.calm:
                    return guard
                self._dispose(guard.close)
                break
        return Guard(spec)

    def done(self, guard: Guard) -> None:
        """Not in use any more: its command is dead, and `conclude` was asked."""
        guard.stop()
        if not guard.needed:
            return
        if len(self._kept) >= MOST_KEPT or not guard.calm:
            self._dispose(guard.close)
            return
        guard.kept_at = time.monotonic()
        self._kept.append(guard)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEEP_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        oldest = time.monotonic() - KEEP_S
        for guard in [guard for guard in self._kept if guard.kept_at <= oldest]:
            self._kept.remove(guard)
            self._dispose(guard.close)
        if self._kept:
            wait_s = min(guard.kept_at for guard in self._kept) - oldest
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._expire)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        while self._kept:
            self._dispose(self._kept.pop().close)
