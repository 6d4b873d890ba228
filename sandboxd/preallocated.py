"""Make pipes and socket pairs before a command needs them, so that it does not wait for them.

A pipe takes up to 60 µs after a pause. What one command uses is made again after its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")
COMMANDS = 2  # that find everything ready
_kinds: list[Preallocated[Any]] = []


class Preallocated(Generic[T]):
    """Of one kind, each used once. For the event loop's thread."""

    def __init__(self, make: Callable[[], T], *, per_command: int = 1) -> None:
        """`per_command`: how many one command uses."""
        self._make = make
        self._most = COMMANDS * per_command
        self._ready: list[T] = []
        _kinds.append(self)

    def take(self) -> T:
        return self._ready.pop() if self._ready else self._make()

    def refill(self) -> None:
        with suppress(OSError):  # too many open files: the command that needs one is told
            while len(self._ready) < self._most:
                self._ready.append(self._make())


def refill_all() -> None:
    """When nothing waits for the event loop."""
    for kind in _kinds:
        kind.refill()
