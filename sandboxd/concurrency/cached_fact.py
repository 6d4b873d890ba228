"""Cache a fact about the host that a thread has to find out, for two seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from sandboxd import event_loop
from sandboxd.concurrency import bounded_thread

FRESH_S = 2.0
LIMIT_S = 5.0
T = TypeVar("T")


class CachedFact(Generic[T]):
    """`value` is None before the first look, and after one that took too long."""

    def __init__(self, find: Callable[[], T | None]) -> None:
        self._find = find
        self._until = float("-inf")
        self._looking: event_loop.Task[None] | None = None
        self.value: T | None = None

    async def fresh(self) -> T | None:
        """As it is now, or was FRESH_S ago."""
        looking = self._look_if_old()
        if looking is not None:
            await event_loop.shield(looking)
        return self.value

    def known(self) -> T | None:
        """Without waiting. A look starts if the last one is old; its result counts next time."""
        self._look_if_old()
        return self.value

    def _look_if_old(self) -> event_loop.Task[None] | None:
        if self._looking is None and time.monotonic() >= self._until:
            self._looking = event_loop.create_task(self._look())
        return self._looking

    async def _look(self) -> None:
        begun = time.monotonic()
        try:
            self.value = await bounded_thread.run_within(LIMIT_S, self._find, default=None)
        finally:
            self._until = begun + FRESH_S
            self._looking = None
