"""The guards of running commands, and those that are kept for the next command of the same spec."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from sandboxd import event_loop
from sandboxd.policy.plan import SandboxSpec
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.types import PathChanged
from sandboxd.workspace_guard.guard import NO_REPOSITORIES, Guard

KEEP_S = 5.0  # a kept guard holds the workspace open, so its file system cannot be unmounted
MOST_KEPT = 32  # a user has 128 inotify instances


class Guards:
    """One for each running command. A guard that saw nothing is kept for the next command of the
    same spec: making one takes as long as a short command. `dispose` runs work in a thread."""

    def __init__(self, dispose: Callable[[Callable[[], None]], None]) -> None:
        self._dispose = dispose
        self._kept: dict[SandboxSpec | None, list[Guard]] = {}
        self._count = 0
        self._timer: event_loop.Timer | None = None

    def take(self, spec: SandboxSpec, nested: Repositories = NO_REPOSITORIES) -> Guard:
        if spec in self._kept:
            guard = self._kept[spec][-1]
            self._forget(guard)
            if guard.calm and not guard.known_moved:
                with suppress(PathChanged):  # which the new one raises
                    guard.renew(nested)
                    return guard
            self._dispose(guard.close)
        return Guard(spec, nested)

    def done(self, guard: Guard) -> None:
        """Take a guard back after its command has ended and `conclude` was called."""
        guard.stop()
        guard.rest()
        if not guard.needed:
            guard.close()
            return
        if guard.unusable or self._count >= MOST_KEPT or not guard.calm or guard.known_moved:
            self._dispose(guard.close)
            return
        guard.kept_at = time.monotonic()
        self._kept.setdefault(guard.spec, []).append(guard)
        self._count += 1
        if self._timer is None:
            self._timer = event_loop.call_later(KEEP_S, self._expire)

    def _forget(self, guard: Guard) -> None:
        same = self._kept[guard.spec]
        same.remove(guard)
        self._count -= 1
        if not same:
            del self._kept[guard.spec]

    def _expire(self) -> None:
        self._timer = None
        oldest = time.monotonic() - KEEP_S
        kept = [guard for same in self._kept.values() for guard in same]
        for guard in [guard for guard in kept if guard.kept_at <= oldest]:
            self._forget(guard)
            self._dispose(guard.close)
        left = [guard.kept_at for guard in kept if guard.kept_at > oldest]
        if left:
            self._timer = event_loop.call_later(min(left) - oldest, self._expire)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for guard in [guard for same in self._kept.values() for guard in same]:
            self._forget(guard)
            self._dispose(guard.close)
