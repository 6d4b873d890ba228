"""Kernel objects that are made ahead, so that a command does not wait for them.

A pipe takes up to 60 µs after a pause. What one command uses is made again after its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")
COMMANDS = 2  # that find everything in stock
_stocks: list[Stock[Any]] = []


class Stock(Generic[T]):
    """Of one kind, each used once. For the event loop's thread."""

    def __init__(self, make: Callable[[], T], *, for_each: int = 1) -> None:
        """`for_each`: how many one command uses."""
        self._make = make
        self._most = COMMANDS * for_each
        self._ready: list[T] = []
        _stocks.append(self)

    def take(self) -> T:
        return self._ready.pop() if self._ready else self._make()

    def fill(self) -> None:
        with suppress(OSError):  # too many open files: the command that needs one is told
            while len(self._ready) < self._most:
                self._ready.append(self._make())


def fill_all() -> None:
    """When nothing waits for the event loop."""
    for stock in _stocks:
        stock.fill()
