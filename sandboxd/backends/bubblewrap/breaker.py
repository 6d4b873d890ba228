"""A circuit breaker for bwrap: after it hung, most requests are refused at once and do not wait.

While it is known to hang one request at a time tries it; the others are refused at once. `status`
and `doctor` always try. No other result of a trial is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sandboxd_proto.errors import SandboxUnavailable

REST_S = 5.0
TRIAL_S = 5.0  # for the next one, after one that hung
# bwrap's time grows with the square of the number: beyond this a request is slow by itself, and
# must not make others wait.
USUAL_MOUNTS = 150


class Breaker:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hung: str | None = None
        self._until = 0.0
        self._trying = False

    @property
    def tripped(self) -> bool:
        return self._hung is not None

    @contextmanager
    def attempt(self, *, asked: bool = False) -> Iterator[None]:
        """Around one trial. SandboxUnavailable when it is too early for one; not if `asked`."""
        if self._hung is None:
            yield
            return
        if not asked and (self._trying or self._clock() < self._until):
            raise SandboxUnavailable(
                f"{self._hung} a moment ago, and is tried again in {REST_S:g} s at most",
                remedy="find out why bwrap hangs (`sandboxctl doctor` tries it at once), "
                "and send the request again",
            )
        self._trying = True
        try:
            yield
        finally:
            self._trying = False

    def hung(self, how: str, *, mounts: int = 0) -> None:
        """`mounts`: how many the sandbox was to have."""
        if mounts <= USUAL_MOUNTS:
            self._hung, self._until = how, self._clock() + REST_S

    def worked(self) -> None:
        self._hung = None
