"""Run work that can wait until an answer is sent: closing, records, the end of sandboxes.

The woken client often runs on the daemon's own CPU, so whatever is done right after an answer
delays its reader. It is done a moment later, or before the next request is handled if that comes
first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sandboxd import event_loop, preallocated

log = logging.getLogger(__name__)
AFTER_S = 0.002


class DeferredWork:
    def __init__(self) -> None:
        self._work: list[Callable[[], None]] = []
        self._timer: event_loop.Timer | None = None

    def add(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        if self._timer is None:
            self._timer = event_loop.call_later(AFTER_S, self._run_at_last)

    def _run_at_last(self) -> None:
        self._timer = None
        self.run()
        preallocated.refill_all()

    def run(self) -> None:
        """Each part, whatever becomes of the others."""
        if not self._work:
            return
        work, self._work = self._work, []
        for part in work:
            try:
                part()
            except Exception:
                log.exception("what follows an execution failed")
