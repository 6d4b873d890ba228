"""One probe at a time, shared by those who asked before it began.

A probe starts a sandbox. A client that asks a thousand times at once must not start a thousand. No
result is kept for later: who asks while a probe runs gets the result of the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from sandboxd.backends.interface import Probe


class SharedProbe:
    def __init__(self, probe: Callable[[], Awaitable[Probe]]) -> None:
        self._probe = probe
        self._lock: anyio.Lock | None = None
        self._started = 0
        self._done = 0
        self._result: Probe | None = None

    async def __call__(self) -> Probe:
        mine = self._started + 1  # one that begins from now on
        self._lock = self._lock or anyio.Lock()
        async with self._lock:
            if self._result is None or self._done < mine:
                self._started += 1
                number = self._started
                self._result = await self._probe()
                self._done = number
            return self._result
