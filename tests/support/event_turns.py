"""What happens in each turn of an event loop, for tests of bounded work."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from sandboxd.rpc.partial_frames import PartialFrames
from sandboxd.rpc.turns import Turns as ConnectionTurns


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)  # not 0: that would take the interpreter from other threads


class Turns:
    """Counts what happens in each turn of the running event loop."""

    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()
        self._turn = 0
        self._tick()

    def _tick(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._tick)

    def count(self, amount: int = 1) -> None:
        self.seen[self._turn] += amount

    @property
    def most(self) -> int:
        return max(self.seen.values())


def stub_service() -> Any:
    return SimpleNamespace(
        supervisor=SimpleNamespace(abandon=lambda owner: None, catch_up=lambda: None),
        left=lambda connection: None,
        partial_frames=PartialFrames(),
        turns=ConnectionTurns(),
        subscriptions=0,
        follows=0,
    )
