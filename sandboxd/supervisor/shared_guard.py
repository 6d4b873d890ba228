"""One watch for all persistent sandboxes that have the same protected paths.

A user has 128 inotify instances, and a watch without one looks at every path twenty times a second:
hundreds of sandboxes of one workspace would keep the daemon busy with that alone. What one of them
makes all of them see, so one watch can tell all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from sandboxd.policy import plan
from sandboxd.supervisor.guard import Guard, Protected

Key = tuple[plan.Protected, ...]


@dataclass(eq=False, slots=True)
class _Shared:
    guard: Guard
    users: int = 0
    told: list[Callable[[], None]] = field(default_factory=list)

    def tell(self) -> None:
        for violated in list(self.told):
            violated()


class SharedGuards:
    def __init__(self) -> None:
        self._by_key: dict[Key, _Shared] = {}

    def join(self, spec: plan.SandboxSpec, violated: Callable[[], None]) -> Member:
        """`violated` is called whenever a protected path has come into being."""
        key = spec.protected
        shared = self._by_key.get(key)
        if shared is None:
            shared = self._by_key[key] = _Shared(Guard(spec))
            shared.guard.start(shared.tell)
        shared.users += 1
        shared.told.append(violated)
        return Member(self._by_key, key, shared, violated)


class Member:
    """One sandbox's part: `mute` before its processes are ended, `conclude` when they are dead."""

    def __init__(
        self, by_key: dict[Key, _Shared], key: Key, shared: _Shared, violated: Callable[[], None]
    ) -> None:
        self._by_key = by_key
        self._key = key
        self._shared: _Shared | None = shared
        self._violated = violated

    def mute(self) -> None:
        if self._shared is not None and self._violated in self._shared.told:
            self._shared.told.remove(self._violated)

    async def conclude(self) -> Protected:
        """(path, where it is now) of what appeared. The last one to leave ends the watch."""
        self.mute()
        shared, self._shared = self._shared, None
        if shared is None:
            return ()
        found = shared.guard.conclude()
        shared.users -= 1
        if shared.users == 0:
            del self._by_key[self._key]
            shared.guard.stop()
            if shared.guard.needed:
                await anyio.to_thread.run_sync(shared.guard.close)
        return found
