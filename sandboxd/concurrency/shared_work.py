"""Work whose result is for everyone who asked before it began.

One at a time; no result is kept for later. Who asks while it runs gets the result of the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

from sandboxd import event_loop

T = TypeVar("T")


class SharedWork(Generic[T]):
    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._next: event_loop.Task[T] | None = None

    async def result(self, work: Callable[[], Awaitable[T]]) -> T:
        """Of `work` of the first one who asked."""
        if self._next is None:
            self._next = event_loop.create_task(self._run(work))
        return await event_loop.shield(self._next)

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._lock:
            self._next = None
            return await work()
