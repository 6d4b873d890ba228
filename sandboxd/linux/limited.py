"""Commands in cgroups of their own: the same sandbox, with limits that the kernel holds.

Stands between a sandbox's init and whoever spawns commands in it. Without a delegated cgroup it is
not there at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import anyio

from sandboxd.linux.cgroups import Cgroup, Cgroups
from sandboxd.linux.init_process import InitProcess
from sandboxd.linux.init_sandbox import InitSandbox
from sandboxd.linux.terminal import Terminal
from sandboxd.policy.plan import Limits
from sandboxd.sandbox import Command, ExitReport, LimitName, Process, Sandbox, Stdio
from sandboxd_proto.messages.execute import Tier

LOOK_EVERY_S = 0.05
_FIELDS: dict[LimitName, str] = {
    "memory": "max_memory_bytes",
    "cpu": "max_cpu_secs",
    "processes": "max_processes",
}


class Spawner(Sandbox, Protocol):
    """A sandbox of our init, for backends that open terminals themselves."""

    async def spawn(
        self, command: Command, stdio: Stdio | None, terminal: Terminal | None = None
    ) -> Process: ...


class LimitedSandbox:
    """`always`: also for commands without limits, for the sake of the kill."""

    def __init__(self, inner: InitSandbox, cgroups: Cgroups, *, always: bool) -> None:
        self._inner = inner
        self._cgroups = cgroups
        self._always = always

    @property
    def alive(self) -> bool:
        return self._inner.alive

    def verify(self) -> bool:
        return self._inner.verify()

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        if self._always or _asked(command.limits):
            return None  # its cgroup has to be made
        return self._inner.spawn_now(command, stdio)

    async def spawn(
        self, command: Command, stdio: Stdio | None, terminal: Terminal | None = None
    ) -> Process:
        asked = _asked(command.limits)
        cgroup = self._cgroups.make(command.limits) if asked or self._always else None
        if cgroup is None:
            process = await self._inner.spawn(command, stdio, terminal)
            return LimitedProcess(process, None, self._cgroups, asked) if asked else process
        left = replace(command, limits=_without(command.limits, cgroup.held))
        try:
            process = await self._inner.spawn(left, stdio, terminal, cgroup=cgroup.entrance)
        except BaseException:
            self._cgroups.let_go(cgroup)
            raise
        cgroup.close_entrance()
        return LimitedProcess(process, cgroup, self._cgroups, asked)


class LimitedProcess:
    """Without a cgroup (it could not be made) it only says so in its report."""

    def __init__(
        self, inner: InitProcess, cgroup: Cgroup | None, cgroups: Cgroups,
        asked: frozenset[LimitName],
    ) -> None:  # fmt: skip
        self._inner = inner
        self._cgroup = cgroup
        self._cgroups = cgroups
        self._exceeded: LimitName | None = None
        held = cgroup.held if cgroup is not None else frozenset()
        tier: dict[bool, Tier] = {True: "enforced", False: "best_effort"}
        self._tiers = tuple(sorted((_FIELDS[name], tier[name in held]) for name in asked))
        self.signal = inner.signal
        self.started = inner.started

    @property
    def pty(self) -> int | None:
        return self._inner.pty

    @property
    def filter_loaded(self) -> bool:
        return self._inner.filter_loaded

    async def wait(self, *, tree: bool = True) -> ExitReport:
        report: ExitReport | None = None
        looking = LOOK_EVERY_S if self._cgroup is not None and self._cgroup.held else None
        while report is None:
            with anyio.move_on_after(looking):
                report = await self._inner.wait(tree=tree)
            self._look(ended=report is not None)
        limit = self._exceeded or report.limit
        return replace(report, limit=limit, tiers=self._tiers)

    def _look(self, *, ended: bool) -> None:
        """Memory ends the tree by itself; the rest only refuses or counts, so it is ended here."""
        if self._cgroup is None or self._exceeded is not None:
            return
        found = self._cgroup.exceeded()
        if found is None or (ended and found == "cpu"):
            return  # it came to its own end first, and nothing was refused to it
        self._exceeded = found
        self.kill()

    def kill(self) -> None:
        if self._cgroup is not None:
            self._cgroup.kill()
        self._inner.kill()

    def close(self) -> None:
        self._inner.close()
        if self._cgroup is not None:
            self._cgroups.let_go(self._cgroup)
            self._cgroup = None


def _asked(limits: Limits) -> frozenset[LimitName]:
    values: dict[LimitName, float | None] = {
        "memory": limits.memory_bytes,
        "cpu": limits.cpu_s,
        "processes": limits.processes,
    }
    return frozenset(name for name, value in values.items() if value is not None)


def _without(limits: Limits, held: frozenset[LimitName]) -> Limits:
    """What is left to rlimits and the keeper of the tree."""
    return replace(
        limits,
        memory_bytes=None if "memory" in held else limits.memory_bytes,
        cpu_s=None if "cpu" in held else limits.cpu_s,
        processes=None if "processes" in held else limits.processes,
    )
