"""Limit how many plans are made in threads at a time: one for each workspace, and a few in all.

What a command leaves in its workspace makes the plans of that workspace slow, and not those of
others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

MOST_AT_ONCE = 3  # busy threads, each of which the event loop waits for


class PlanLimiter:
    def __init__(self) -> None:
        self._threads = anyio.Semaphore(MOST_AT_ONCE)
        self._locks: dict[str | None, tuple[anyio.Lock, int]] = {}

    @asynccontextmanager
    async def slot(self, workspace: str | None) -> AsyncIterator[None]:
        lock, waiting = self._locks.get(workspace, (anyio.Lock(), 0))
        self._locks[workspace] = lock, waiting + 1
        try:
            async with lock, self._threads:
                yield
        finally:
            lock, waiting = self._locks.pop(workspace)
            if waiting > 1:
                self._locks[workspace] = lock, waiting - 1
