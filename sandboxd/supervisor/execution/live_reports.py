"""What a command tried to reach, or what was moved aside, told while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from anyio.abc import TaskGroup

T = TypeVar("T")


class LiveReports(Generic[T]):
    """Reports arrive in a callback of the event loop, the first ones before there are tasks. How
    many there are is bounded where they are read. None are told after `close`: the result has all.
    """

    def __init__(self) -> None:
        self._untold: list[T] = []
        self._tasks: TaskGroup | None = None
        self._tell: Callable[[T], Awaitable[None]] | None = None

    def note(self, report: T) -> None:
        self._untold.append(report)
        self._start()

    def tell_in(self, tasks: TaskGroup, tell: Callable[[T], Awaitable[None]]) -> None:
        self._tasks, self._tell = tasks, tell
        self._start()

    def close(self) -> None:
        self._tasks = None

    def _start(self) -> None:
        """A task only where there is something to tell: most commands need none."""
        if self._tasks is not None and self._untold:
            self._tasks.start_soon(self._run)

    async def _run(self) -> None:
        assert self._tell is not None
        while self._untold:
            await self._tell(self._untold.pop(0))
