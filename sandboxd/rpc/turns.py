"""Connections that have sent more requests than are handled at once: one of them in each turn.

Without the queue every such connection would handle some requests in every turn of the event loop,
and a command of another client, which takes several turns, would wait for all of them each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sandboxd import event_loop


class Turns:
    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def crowded(self) -> bool:
        """Whether a connection waits for its turn."""
        return bool(self._waiting)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call it in a turn of its own, after those that wait already."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            event_loop.call_soon(self._next)

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            event_loop.call_soon(self._next)
        go_on()
