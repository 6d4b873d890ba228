"""Which times of files belong to a run, also if the clock was set back meanwhile."""

from __future__ import annotations

import sys
import time

COARSE_NS = 50_000_000
TICK_NS = 10_000_000  # of the kernel's clock for new files, at 100 Hz


class RunClock:
    """Make it when the run begins."""

    def __init__(self) -> None:
        self._began_ns = time.time_ns() - COARSE_NS
        self._ahead_ns = _ahead_ns()
        self._set_back_ns = 0

    @property
    def since_ns(self) -> int:
        """No change of this run has an earlier time."""
        self._set_back_ns = max(self._set_back_ns, self._ahead_ns - _ahead_ns())
        return self._began_ns - self._set_back_ns


def _ahead_ns() -> int:
    """Less than before, if the clock was set back."""
    if sys.platform == "linux":  # where the monotonic clock stands still in suspend
        return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.time_ns() - time.monotonic_ns()
