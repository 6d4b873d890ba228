"""What the backend `none` is on every platform: two keys, and a warning that stays visible."""

from __future__ import annotations

import logging
import time

from sandboxd.backends.interface import Available, Probe, Unavailable
from sandboxd.backends.unsandboxed_keys import HOW_TO_SET

log = logging.getLogger(__name__)
WARN_EVERY_S = 60.0


class Unsandboxed:
    name = "none"

    def __init__(self, *, permitted: bool) -> None:
        self._permitted = permitted
        self._warned_at: float | None = None

    async def probe(self) -> Probe:
        if not self._permitted:
            return Unavailable(
                "running without a sandbox needs two keys, and they are not both set",
                f"leave it so; or {HOW_TO_SET}",
            )
        return Available((), ("commands run WITHOUT a sandbox: both keys for it are set",))

    def _warn(self) -> None:
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning("running a command WITHOUT a sandbox: both keys for it are set")
