"""How many warm sandboxes to keep for a plan: as many as a burst used, fewer when it is idle."""

from __future__ import annotations

from collections import deque

WINDOW_S = 0.25  # a burst is what arrives faster than sandboxes can be made
MAX_DEPTH = 8
SHRINK_S = 10.0  # after this long without use one is enough
FORGET_S = 60.0  # after this long none is kept
FORGET_ONCE_S = 15.0  # a plan that was used only once is forgotten sooner


class Demand:
    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=MAX_DEPTH)
        self._peak = 0
        self._uses = 0
        self._last = float("-inf")

    def used(self, now: float) -> None:
        if now - self._last > SHRINK_S:
            self._peak = 0
        self._recent.append(now)
        self._uses += 1
        self._last = now
        burst = len([when for when in self._recent if now - when <= WINDOW_S])
        self._peak = max(self._peak, burst)

    def depth(self, now: float) -> int:
        idle = now - self._last
        if idle > (FORGET_ONCE_S if self._uses == 1 else FORGET_S):
            return 0
        return 1 if idle > SHRINK_S else max(1, min(self._peak, MAX_DEPTH))

    def forget(self) -> None:
        self._last = float("-inf")
        self._peak = 0
