"""One command below our init on another machine.

Its messages are those of an InitProcess. What is different: the connection can break, which makes
the result unknown, and a sandbox that serves one command is deleted before the result is given.
"""

from __future__ import annotations

import logging
import re

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from sandboxd.backends.opensandbox.http_client import ApiError
from sandboxd.backends.opensandbox.place import UNCONFIRMED, RemotePlace, bring_back
from sandboxd.backends.opensandbox.remote_init.link import BridgeLink
from sandboxd.linux.init_client.process import InitProcess
from sandboxd.types import BroughtBack, Command, ExitReport, TreeUsage
from sandboxd_proto.errors import ExecFailed, SandboxdError, SandboxUnavailable

log = logging.getLogger(__name__)
KILL_GRACE_S = 3.0
_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.M)
_MEMORY_EVENTS = (
    "cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null; true"
)


class RemoteInitProcess:
    """`alone`: the sandbox serves this command only, and ends with it."""

    def __init__(
        self, place: RemotePlace, link: BridgeLink, inner: InitProcess, command: Command,
        tasks: TaskGroup, *, alone: bool,
    ) -> None:  # fmt: skip
        self._place = place
        self._link = link
        self._inner = inner
        self._command = command
        self._tasks = tasks
        self._alone = alone
        self._copy = place.copy
        self._killed = False
        self._closed = False
        self._over = anyio.Event()
        self._report: ExitReport | None = None

    @property
    def pty(self) -> int | None:
        return self._inner.pty

    @property
    def filter_loaded(self) -> bool:
        return self._inner.filter_loaded

    async def started(self) -> None:
        try:
            await self._inner.started()
        except SandboxdError as error:
            raise self._in_words(error) from None

    async def wait(self, *, tree: bool = True) -> ExitReport:
        try:
            report = await self._inner.wait(tree=tree)
        except SandboxdError as error:
            self._over.set()
            refusal = self._in_words(error)  # before the sandbox is ended, and its connection
            await self._finish(None)
            raise refusal from None
        if report.lost is not None and self._link.broken is not None:
            if not self._killed:
                self._over.set()
                await self._finish(report)
                raise self._unknown()
            report = ExitReport(None, 9, TreeUsage(0.0, 0))
        if tree:
            self._over.set()
            self._report = self._report or await self._finish(report)
            return self._report
        if report.signal == 9 and not self._killed and await self._ran_out_of_memory():
            return replace(report, limit="memory")
        return report

    async def _finish(self, report: ExitReport | None) -> ExitReport:
        """Nothing of the command runs when its result is given."""
        report = report or ExitReport(None, 9, TreeUsage(0.0, 0))
        if report.lost is None and not self._killed and await self._ran_out_of_memory():
            report = replace(report, limit="memory")
        brings_back = self._copy is not None and report.lost is None and self._place.alive
        if self._alone and not brings_back and not await self._place.end():
            report = replace(report, lost=report.lost or UNCONFIRMED)
        return report

    async def _ran_out_of_memory(self) -> bool:
        """The container holds the limit, and its own counters tell: also where the kernel ended
        only some of the command's processes."""
        if self._command.limits.memory_bytes is None or not self._place.alive:
            return False
        try:
            _, said, _ = await self._place.execd.capture(["sh", "-c", _MEMORY_EVENTS])
        except (SandboxdError, ApiError):
            return False
        kills = max((int(count) for count in _OOM_KILLS.findall(said)), default=0)
        before, self._place.oom_kills = self._place.oom_kills, kills
        return kills > before

    def _in_words(self, error: SandboxdError) -> SandboxdError:
        if self._link.broken is not None:
            return self._unknown()
        if isinstance(error, ExecFailed) and "/" in self._command.argv[0]:
            remedy = "the image, or a folder that was granted, has to have it"
            return ExecFailed(error.message, field=error.field, remedy=remedy, **error.facts)
        return error

    def _unknown(self) -> SandboxUnavailable:
        return SandboxUnavailable(
            f"the result of the command is unknown: {self._link.broken}",
            remedy="the sandbox may have expired, been deleted or run out of memory; run it again",
        )

    def signal(self, number: int, *, whole_tree: bool = False) -> None:
        self._inner.signal(number, whole_tree=whole_tree)

    def kill(self) -> None:
        self._inner.kill()
        if not self._killed:
            self._killed = True
            self._tasks.start_soon(self._end_if_it_lives)

    async def _end_if_it_lives(self) -> None:
        """With its sandbox, where the init does not tell of its end."""
        with anyio.move_on_after(KILL_GRACE_S):
            await self._over.wait()
            return
        await self._place.end()
        self._link.give_up("its sandbox was deleted")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._over.set()
        self._inner.close()
        if self._copy is not None:
            self._copy.end()

    async def bring_back(self) -> BroughtBack:
        return await bring_back(self._place, self._command, alone=self._alone)
