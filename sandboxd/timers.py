"""The timers of an event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from time import get_clock_info, monotonic
from typing import Any, Protocol

MOST_AT_ONCE = 16  # callbacks in one turn of the loop
MOST_CANCELLED = 64  # timers that are kept although they were cancelled
CLOCK_S = get_clock_info("monotonic").resolution


class ArmedTimer(Protocol):
    def cancel(self) -> None: ...


class TimerLoop(Protocol):
    """What is used of asyncio's."""

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None
    ) -> ArmedTimer: ...
    def call_exception_handler(self, context: dict[str, Any]) -> None: ...


class Timer:
    """Made by `Timers.add`, without a call of its own: every command has several."""

    __slots__ = ("args", "callback", "timers")
    timers: Timers
    callback: Callable[..., object] | None
    args: tuple[Any, ...]

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback, self.args = None, ()
            self.timers.forget_one()


class Timers:
    """All timers of the loop, behind one of its own. For asyncio each takes fifteen calls in
    Python, and every command has several.
    """

    def __init__(self, loop: TimerLoop) -> None:
        self.loop = loop
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = count()  # timers of one moment in the order in which they were made
        self._cancelled = 0
        self._armed: ArmedTimer | None = None
        self._armed_for = inf
        self._context = Context()

    def add(self, seconds: float, callback: Callable[..., object], args: tuple[Any, ...]) -> Timer:
        timer = Timer()
        timer.timers, timer.callback, timer.args = self, callback, args
        when = monotonic() + seconds
        heappush(self._heap, (when, next(self._numbers), timer))
        if when < self._armed_for:
            self._arm(when)
        return timer

    def forget_one(self) -> None:
        """The next ones are few: a timeout stays in the heap long after its command has ended."""
        self._cancelled += 1
        if self._cancelled > MOST_CANCELLED and 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._cancelled = 0

    def _arm(self, when: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_for = when
        self._armed = self.loop.call_at(when, self.run_due, context=self._context)

    def run_due(self) -> None:
        self._armed, self._armed_for = None, inf
        for _ in range(MOST_AT_ONCE):
            # The loop itself is early by that much at the most.
            if not self._heap or self._heap[0][0] > monotonic() + CLOCK_S:
                break
            self._call(heappop(self._heap)[2])
        self._forget_cancelled()
        if self._heap:
            self._arm(self._heap[0][0])

    def _forget_cancelled(self) -> None:
        """Of the next ones, which need not wake the loop."""
        for _ in range(MOST_CANCELLED):
            if not self._heap or self._heap[0][2].callback is not None:
                break
            self._call(heappop(self._heap)[2])

    def _call(self, timer: Timer) -> None:
        callback, args = timer.callback, timer.args
        timer.callback = None  # cancelling it has no effect any more
        if callback is None:
            self._cancelled -= 1
            return
        try:
            callback(*args)
        except Exception as error:
            failed = {"message": f"the callback {callback!r} failed", "exception": error}
            self.loop.call_exception_handler(failed)


class PolledTimers(Timers):
    """Of a loop that asks for the next one before it waits."""

    def _arm(self, when: float) -> None:
        self._armed_for = when

    def seconds_left(self) -> float | None:
        """Until the next one is due; None without one."""
        if self._heap and self._heap[0][2].callback is None:
            self._forget_cancelled()
            self._armed_for = self._heap[0][0] if self._heap else inf
        return self._armed_for - monotonic() if self._heap else None

    def run_if_due(self) -> None:
        if self._armed_for <= monotonic() + CLOCK_S:
            self.run_due()
