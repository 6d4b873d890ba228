"""A sandbox whose commands run in cgroups, so that the kernel enforces their limits.

A command with limits has its own cgroup; the sandbox's cgroup holds the default number of
processes. This wraps the sandbox of an init. It is left out where no cgroup can be used.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Protocol

from msgspec.structs import replace

from sandboxd import event_loop
from sandboxd.linux.cgroup.cgroups import Cgroups
from sandboxd.linux.cgroup.command_limits import CommandCgroup
from sandboxd.linux.cgroup.sandbox_process_limit import SandboxCgroup
from sandboxd.linux.init_client.process import InitProcess
from sandboxd.linux.init_client.rlimits import ProcessCount
from sandboxd.linux.init_client.session import InitSandbox
from sandboxd.linux.pty import Terminal
from sandboxd.policy.plan import Limits
from sandboxd.types import Command, ExitReport, LimitName, Process, Sandbox, Stdio
from sandboxd.wrappers import WrappedProcess, WrappedSandbox
from sandboxd_proto.messages.execute import Tier

log = logging.getLogger(__name__)
LOOK_EVERY_S = 0.05
LOOK_SELDOM_S = 1.0
_FIELDS: dict[LimitName, str] = {
    "memory": "max_memory_bytes",
    "cpu": "max_cpu_secs",
    "processes": "max_processes",
    "timeout": "timeout",
}
_NOTHING: frozenset[LimitName] = frozenset()
_TIERS: dict[bool, Tier] = {True: "enforced", False: "best_effort"}


class Spawner(Sandbox, Protocol):
    """A sandbox of our init, for backends that open terminals themselves."""

    async def spawn(
        self, command: Command, stdio: Stdio | None, terminal: Terminal | None = None
    ) -> Process: ...


class LimitedSandbox(WrappedSandbox[InitSandbox]):
    """`always`: also for commands without limits, to be able to kill them. `own`: the cgroup of
    the whole sandbox. `counts`: what RLIMIT_NPROC counts for its commands.
    """

    def __init__(
        self, inner: InitSandbox, cgroups: Cgroups, *, always: bool = False,
        own: SandboxCgroup | None = None, counts: ProcessCount = "namespace",
    ) -> None:  # fmt: skip
        super().__init__(inner)
        self._cgroups = cgroups
        self._always = always
        self._own = own
        self._counts = counts

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        if self._wants_cgroup(command.limits):
            return None  # its cgroup has to be made
        share = self._admit(command)
        try:
            process = self._inner.spawn_now(command, stdio)
        except BaseException:
            share.release()
            raise
        if process is None:
            share.release()
            return None
        return self._limited(process, command, None, share)

    async def spawn(
        self, command: Command, stdio: Stdio | None, terminal: Terminal | None = None
    ) -> Process:
        wanted = self._wants_cgroup(command.limits)
        cgroup = self._cgroups.make(command.limits, self._own) if wanted else None
        nested = cgroup is None or not self._cgroups.v2
        share = self._admit(command) if nested else Share(None, None)
        left, entrance = command, None
        if cgroup is not None:
            left = replace(command, limits=_without(command.limits, cgroup.held))
            entrance = cgroup.entrance
        try:
            process = await self._inner.spawn(left, stdio, terminal, cgroup=entrance)
        except BaseException:
            share.release()
            if cgroup is not None:
                self._cgroups.let_go(cgroup)
            raise
        if cgroup is not None:
            cgroup.close_entrance()
        return self._limited(process, command, cgroup, share)

    def _wants_cgroup(self, limits: Limits) -> bool:
        return (self._always and self._cgroups.v2) or self._cgroups.hold(limits)

    def _admit(self, command: Command) -> Share:
        if self._own is None:
            return Share(None, None)
        bound = command.limits.process_bound
        try:
            self._own.admit(bound)
        except OSError as error:
            log.warning("the limit of a sandbox's cgroup cannot be set: %s", error)
            return Share(None, None)
        return Share(
            self._own, bound, alone=not command.keep_background,
            explicit=command.limits.processes is not None,
        )  # fmt: skip

    def _limited(
        self, process: InitProcess, command: Command, cgroup: CommandCgroup | None, share: Share
    ) -> Process:
        counted = share.own is not None or self._counts == "namespace"
        tiers = _tiers(command.limits, cgroup.held if cgroup is not None else _NOTHING, counted)
        if cgroup is None and share.own is None and not tiers:
            return process
        return LimitedProcess(
            process, cgroup, self._cgroups, share, tiers, keeps=command.keep_background
        )


class Share:
    """What one command may use of the cgroup of its sandbox; `own` is None where there is none."""

    def __init__(
        self, own: SandboxCgroup | None, processes: int | None, *, alone: bool = False,
        explicit: bool = False,
    ) -> None:  # fmt: skip
        self.own = own
        self.explicit = explicit
        self._processes = processes
        self._alone = alone

    def exceeded(self) -> bool:
        """A fork was refused. Where commands share the sandbox it may have been another's, so
        their own trees are counted instead. One that is alone has a sandbox that is new."""
        return self._alone and self.own is not None and self.own.forks_refused() > 0

    def refuse_forks(self) -> None:
        if self.own is not None and self._alone:
            self.own.refuse_forks()

    def release(self) -> None:
        if self.own is not None:
            self.own.release(self._processes)
            self.own = None


class LimitedProcess(WrappedProcess):
    """Without a cgroup (it could not be made) the report says so. `keeps`: processes that the
    command leaves behind stay alive, and in its cgroup.
    """

    def __init__(
        self, inner: InitProcess, cgroup: CommandCgroup | None, cgroups: Cgroups, share: Share,
        tiers: tuple[tuple[str, Tier], ...], *, keeps: bool,
    ) -> None:  # fmt: skip
        super().__init__(inner)
        self._keeps = keeps
        self._cgroup = cgroup
        self._cgroups = cgroups
        self._share = share
        self._exceeded: LimitName | None = None
        self._killed = False
        self._tiers = tiers
        self._timer: event_loop.Timer | None = None
        self._error: Exception | None = None

    async def wait(self, *, tree: bool = True) -> ExitReport:
        watched = self._share.explicit or (self._cgroup is not None and self._cgroup.held)
        # The reaper inside counts the tree too; this finds forks that were refused to threads.
        self._look_after(LOOK_EVERY_S if watched else LOOK_SELDOM_S if self._share.own else None)
        try:
            report = await self._inner.wait(tree=tree)
        finally:
            if self._timer is not None:
                self._timer.cancel()
        if self._error is not None:
            raise self._error
        if watched or report.exit_code != 0:
            self._look(ended=True)
        if self._exceeded is None and not self._tiers:
            return report
        return replace(report, limit=self._exceeded or report.limit, tiers=self._tiers)

    def _look_after(self, seconds: float | None) -> None:
        if seconds is not None:
            self._timer = event_loop.call_later(seconds, self._look_again, seconds)

    def _look_again(self, seconds: float) -> None:
        """Ends a command that cannot be looked at."""
        try:
            self._look(ended=False)
            self._look_after(seconds)
        except Exception as error:
            self._error = error
            self.kill()

    def _look(self, *, ended: bool) -> None:
        """The kernel kills the tree for memory; the other limits only refuse or count.

        After a kill every fork was refused, whatever the limit is.
        """
        if self._killed:
            return
        found = self._cgroup.exceeded() if self._cgroup is not None else None
        if found is None and self._share.exceeded():
            found = "processes"
        if found is None or (ended and found == "cpu"):
            return  # it ended first, and nothing was refused
        self._exceeded = found
        self.kill()

    def kill(self) -> None:
        self._killed = True
        self._share.refuse_forks()
        if self._cgroup is not None:
            self._cgroup.kill()
        self._inner.kill()

    def close(self) -> None:
        self._inner.close()
        self._share.release()
        if self._cgroup is not None:
            self._cgroups.let_go(self._cgroup, kill=not self._keeps)
            self._cgroup = None


@lru_cache(maxsize=64)
def _tiers(
    limits: Limits, held: frozenset[LimitName], counted: bool
) -> tuple[tuple[str, Tier], ...]:
    """Of the limits that were asked for. `counted`: something else holds `processes`."""
    values: dict[LimitName, float | None] = {
        "memory": limits.memory_bytes,
        "cpu": limits.cpu_s,
        "processes": limits.processes,
    }
    if counted:
        held |= {"processes"}
    asked = {name for name, value in values.items() if value is not None}
    if limits.process_bound is not None and "processes" not in held:
        asked.add("processes")  # the plan reported it as enforced
    return tuple(sorted((_FIELDS[name], _TIERS[name in held]) for name in asked))


def _without(limits: Limits, held: frozenset[LimitName]) -> Limits:
    """The limits that rlimits and the reaper still have to enforce."""
    return replace(
        limits,
        memory_bytes=None if "memory" in held else limits.memory_bytes,
        cpu_s=None if "cpu" in held else limits.cpu_s,
        processes=None if "processes" in held else limits.processes,
        default_processes=None if "processes" in held else limits.default_processes,
    )
