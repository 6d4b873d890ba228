"""Whether AppContainers work here, by using one. One probe at a time; only success is remembered.

A success is kept for the life of the process, a failure never. A probe that fails late does not
take back the success of another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio

from sandboxd.backends.interface import Available, Probe, Unavailable
from sandboxd.windows.app_containers.preparation import Missing


class CachedProbe:
    """`attempt` runs the whole pipeline. Those who ask while it runs share its result."""

    def __init__(self, attempt: Callable[[], Awaitable[Probe]]) -> None:
        self._attempt = attempt
        self._success: Available | None = None
        self._running: _Running | None = None

    async def __call__(self) -> Probe:
        if self._success is not None:
            return self._success
        running = self._running
        if running is None:
            return await self._lead()
        await running.done.wait()
        if self._success is not None:
            return self._success
        # The leader was cancelled: it says nothing about this machine.
        return running.result if running.result is not None else await self()

    async def _lead(self) -> Probe:
        running = self._running = _Running()
        try:
            running.result = await self._try()
            if isinstance(running.result, Available):
                self._success = running.result
            return self._success or running.result
        finally:
            self._running = None
            running.done.set()

    async def _try(self) -> Probe:
        try:
            return await self._attempt()
        except Exception as error:
            return Unavailable(
                f"the probe of AppContainers failed: {error}", "see the daemon's log"
            )


def prepared(probe: Probe, lacking: Sequence[Missing], *, elevated: bool) -> Probe:
    """The probe's answer with what an administrator has not prepared. Pure.

    The probe's own program needs less than cmd, so it may work where cmd does not.
    """
    if isinstance(probe, Unavailable):
        problems = (probe.reason, *(one.problem for one in lacking))
        fixes = [f"as administrator: {one.fix}" for one in lacking] or [probe.remedy]
        return Unavailable("; ".join(problems), "; ".join(fixes))
    warnings = [f"{one.problem}: as administrator run {one.fix}" for one in lacking]
    if elevated:
        warnings.append("the daemon runs with an administrator's rights, which its config permits")
    return Available(probe.layers, (*probe.warnings, *warnings))


class _Running:
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.result: Probe | None = None
