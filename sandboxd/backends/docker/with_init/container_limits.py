"""Commands below an init in a container, with the container's own counters as evidence.

The engine limits the container as a whole: memory by killing, processes by refusing forks. The
cgroup shows both, and the CPU time of the whole container; the init only sees its own tree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from msgspec.structs import replace

from sandboxd import event_loop
from sandboxd.backends.docker.with_init.counters import Counters, Counts
from sandboxd.linux.init_client.process import InitProcess
from sandboxd.linux.init_client.session import InitSandbox
from sandboxd.policy.plan import Limits
from sandboxd.types import Command, ExitReport, LimitName, Process, Stdio
from sandboxd.wrappers import WrappedProcess, WrappedSandbox

LOOK_EVERY_S = 0.05
WhyLost = Callable[[], Awaitable[str | None]]


class CountedSandbox(WrappedSandbox[InitSandbox]):
    """`why_lost`: what the engine reports about a container that ended unexpectedly."""

    def __init__(self, inner: InitSandbox, counters: Counters, why_lost: WhyLost) -> None:
        super().__init__(inner)
        self._counters = counters
        self._why_lost = why_lost

    async def spawn(self, command: Command, stdio: Stdio | None) -> Process:
        before, left = self._before(command)
        return self._counted(await self._inner.spawn(left, stdio), before, command)

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        before, left = self._before(command)
        process = self._inner.spawn_now(left, stdio)
        return self._counted(process, before, command) if process is not None else None

    def _before(self, command: Command) -> tuple[Counts, Command]:
        before = self._counters.read()
        return before, replace(command, limits=_not_seen(command.limits, before))

    def _counted(self, process: InitProcess, before: Counts, command: Command) -> Process:
        return CountedProcess(process, self._counters, before, command, self._why_lost)


class CountedProcess(WrappedProcess):
    def __init__(
        self, inner: InitProcess, counters: Counters, before: Counts, command: Command,
        why_lost: WhyLost,
    ) -> None:  # fmt: skip
        super().__init__(inner)
        self._counters = counters
        self._before = before
        self._limits = command.limits
        self._alone = not command.keep_background
        self._why_lost = why_lost
        self._exceeded: LimitName | None = None

    async def wait(self, *, tree: bool = True) -> ExitReport:
        await event_loop.enter_task()
        limits = self._limits
        asked = (limits.memory_bytes, limits.cpu_s, limits.processes)
        watched = any(value is not None for value in asked)
        report: ExitReport | None = None
        while report is None:
            with anyio.move_on_after(LOOK_EVERY_S if watched else None):
                report = await self._inner.wait(tree=tree)
            if watched and self._exceeded is None:
                self._exceeded = self._look(report)
                if self._exceeded is not None:
                    self.kill()
        if report.lost is not None and self._exceeded != "memory":
            return replace(report, lost=await self._why_lost() or report.lost)
        return replace(report, limit=report.limit or self._exceeded, lost=None)

    def _look(self, report: ExitReport | None) -> LimitName | None:
        """The kernel counts OOM kills of the container. Where commands share it, a kill is
        attributed to a command only if that command did not exit normally."""
        if report is not None and report.exit_code == 0 and not self._alone:
            return None
        now, before, limits = self._counters.read(), self._before, self._limits
        killed = limits.memory_bytes is not None and _more(now.memory_kills, before.memory_kills)
        if killed and (self._alone or report is not None):
            return "memory"
        if limits.processes is not None and _more(now.forks_refused, before.forks_refused):
            return "processes"
        used = (now.cpu_s or 0.0) - (before.cpu_s or 0.0)
        if report is None and limits.cpu_s is not None and used > limits.cpu_s:
            return "cpu"
        return None


def _not_seen(limits: Limits, counts: Counts) -> Limits:
    """The init need not watch limits that the container enforces and counts: its rlimits would
    make an allocation fail before the container's limit is reached."""
    return replace(
        limits,
        memory_bytes=limits.memory_bytes if counts.memory_kills is None else None,
        processes=limits.processes if counts.forks_refused is None else None,
        default_processes=None,  # the container enforces it
    )


def _more(now: int | None, before: int | None) -> bool:
    return now is not None and now > (before or 0)
