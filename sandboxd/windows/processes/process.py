"""A running command in its job: wait for it, end it, report how it ended."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from ctypes import c_uint32, c_uint64

import anyio

from sandboxd import event_loop
from sandboxd.platform.windows.loop import current_proactor
from sandboxd.types import ExitReport, TreeUsage
from sandboxd.windows import api, ends
from sandboxd.windows.job_objects import running_jobs
from sandboxd.windows.job_objects.jobs import Job, JobPort
from sandboxd.windows.processes import exits
from sandboxd.windows.processes.console import ConsoleTerminal
from sandboxd.windows.processes.spawn import Suspended
from sandboxd.windows.structures import JOB_OBJECT_MSG_ACTIVE_PROCESS_ZERO

assert sys.platform == "win32"

_TERM, _INT, _BREAK, _KILL = 15, 2, 21, 9
_EMPTY_POLL_S = 0.05


class JobProcess:
    """Owns the process's handle, its job and its terminal. Its thread is resumed by the caller.

    `keep_background`: what it leaves running goes on; with a terminal everything ends with it.
    """

    filter_loaded = False

    def __init__(
        self, made: Suspended, job: Job, port: JobPort, *, terminal: ConsoleTerminal | None = None,
        keep_background: bool = False, sandboxed: bool = False,
    ) -> None:  # fmt: skip
        self.pid = made.pid
        self._process = made
        self._job = job
        self._port = port
        self._terminal = terminal
        self._keep = keep_background and terminal is None
        self._sandboxed = sandboxed
        self._messages: set[int] = set()
        self._exited = anyio.Event()
        self._gone = anyio.Event()
        self._key = 0

    def start(self) -> None:
        """Watch it. Before its thread is resumed, so that no message is missed."""
        self._key = self._port.watch(self._job, self._told)
        try:
            self._waiting = current_proactor().wait_for_handle(self._process.process)
        except OSError:
            self._port.forget(self._key)
            raise
        self._waiting.add_done_callback(self._ended)
        running_jobs.add(self._job)
        if self._terminal is not None:
            ends.terminals[self._terminal.output] = self._terminal

    @property
    def pty(self) -> int | None:
        return self._terminal.output if self._terminal is not None else None

    def _told(self, message: int) -> None:
        self._messages.add(message)
        if message == JOB_OBJECT_MSG_ACTIVE_PROCESS_ZERO:
            self._gone.set()

    def _ended(self, waiting: event_loop.Future[bool]) -> None:
        if waiting.cancelled():
            return
        self._exited.set()
        if not self._keep:  # what the command left behind ends with it
            self._job.terminate(exits.KILLED)
        if self._terminal is not None:
            self._terminal.end()

    async def started(self) -> None:
        """CreateProcess has said already whether the program can run."""

    async def wait(self, *, tree: bool = True) -> ExitReport:
        await self._exited.wait()
        if tree:
            await self._until_empty()
        return self._report()

    async def _until_empty(self) -> None:
        """Messages of a job may be lost: the list of its processes is asked too."""
        while not self._gone.is_set() and not self._job.is_empty():
            with anyio.move_on_after(_EMPTY_POLL_S):
                await self._gone.wait()

    def _report(self) -> ExitReport:
        code = c_uint32()
        known = api.GetExitCodeProcess(self._process.process, ctypes.byref(code))
        exit_code = code.value if known else None
        limit = exits.limit_of(frozenset(self._messages), exit_code)
        failure = exits.start_denial(exit_code) if self._sandboxed else None
        return ExitReport(exit_code, None, self._usage(), limit=limit, start_failure=failure)

    def _usage(self) -> TreeUsage:
        times = [c_uint64() for _ in range(4)]
        api.GetProcessTimes(self._process.process, *map(ctypes.byref, times))
        cpu_ms = (times[2].value + times[3].value) / 10_000
        return TreeUsage(cpu_ms, self._job.peak_memory())

    def signal(self, number: int, *, whole_tree: bool = False) -> None:
        """There is no console to send Ctrl-C to: what asks to end ends the tree."""
        if number in (_TERM, _INT, _BREAK, _KILL):
            self.kill()

    def kill(self) -> None:
        with suppress(OSError):
            self._job.terminate(exits.KILLED)

    def close(self) -> None:
        """Closing the job ends what is left in it."""
        self._port.forget(self._key)
        if not self._waiting.done():
            self._waiting.cancel()
        running_jobs.remove(self._job)
        self._job.close()
        self._process.close()
        if self._terminal is not None:
            ends.terminals.pop(self._terminal.output, None)
            self._terminal.close()
