"""How often the guard looks at files by a clock, besides inotify."""

from __future__ import annotations

import time

POLL_S = 0.25
_PAUSE_FACTOR = 20  # a slow look takes at most about a twentieth of the time


def pause_after(began: float) -> float:
    """Seconds until the next look, after one that began at this time of the monotonic clock."""
    return max(POLL_S, _PAUSE_FACTOR * (time.monotonic() - began))
