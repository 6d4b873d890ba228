"""One command from the open sandbox to the result: input, output, timeout, signals, the end."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
import time
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup

from sandboxd.backends.interface import Backend, Enforcement
from sandboxd.sandbox import Command, ExitReport, Process, Sandbox, TreeUsage
from sandboxd.supervisor.judge import Bench, Judge
from sandboxd.supervisor.outcome import Ended, outcome
from sandboxd.supervisor.output import OutputBudget, Stream
from sandboxd.supervisor.pipes import Pipes
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd.supervisor.stdin import StdinFeed
from sandboxd_proto.errors import InvalidParams, SandboxdError
from sandboxd_proto.messages.execute import (
    Captured,
    Encoding,
    ExecuteResult,
    StreamName,
    Tier,
    Usage,
)

TERM_GRACE_S = 2.0
KILL_GRACE_S = 5.0


class Execution:
    """Exists from the moment that the request was read, so that writes may follow at once."""

    def __init__(self, execution_id: str, request: ExecuteRequest, bench: Bench) -> None:
        self.id = execution_id
        self.request = request
        self.started_at = time.time()
        self.backend = ""
        self.sandbox_id = request.sandbox
        self.done = anyio.Event()
        self.result: ExecuteResult | None = None
        self.error: SandboxdError | None = None
        self._bench = bench
        self._process: Process | None = None
        self._ended_by: Ended | None = None
        self._pipes = Pipes()
        self._stdin = StdinFeed(self._pipes.give_up(self._pipes.stdin_write))
        self._pty_ready = anyio.Event()

    # what clients may do with it

    async def write(self, data: bytes) -> None:
        await self._typing_allowed()
        await self._stdin.write(data)

    async def close_stdin(self) -> None:
        await self._typing_allowed()
        await self._stdin.end()

    async def _typing_allowed(self) -> None:
        if not self.request.stdin_open and self.request.pty is None:
            raise InvalidParams(
                "the stdin of this execution was not left open", field="execution_id",
                remedy='start it with "stdin_open": true',
            )  # fmt: skip
        if self.request.pty is not None:
            await self._pty_ready.wait()

    def send_signal(self, number: int) -> None:
        if self._process is not None:
            self._process.signal(number)

    def resize(self, rows: int, cols: int) -> None:
        if self.request.pty is None:
            raise InvalidParams("this execution has no terminal", field="execution_id")
        master = self._process.pty if self._process is not None else None
        if master is not None:
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def cancel(self) -> None:
        self._end("cancelled")

    def _end(self, why: Ended) -> None:
        """Kill the whole tree; the first reason is the one that is reported."""
        if self._ended_by is None and not self.done.is_set():
            self._ended_by = why
        if self._process is not None:
            self._process.kill()

    @property
    def cancelled(self) -> bool:
        return self._ended_by == "cancelled"

    # what the supervisor does with it

    async def run(
        self, backend: Backend, sandbox: Sandbox, enforcement: Enforcement,
        release: Callable[[], Awaitable[None]], *, keep_background: bool = False,
    ) -> ExecuteResult:  # fmt: skip
        """`release` lets go of the sandbox: called as soon as the command's tree is dead."""
        self.backend = backend.name
        request, plan = self.request, self.request.plan
        judge = Judge(
            plan, request.argv, self._bench,
            isolated=backend.name != "none", pty=request.pty is not None,
        )  # fmt: skip
        command = Command(
            argv=request.argv, env=plan.env, cwd=plan.cwd, limits=plan.limits,
            syscall_policy=plan.syscall_policy, pty=request.pty, keep_background=keep_background,
        )  # fmt: skip
        process = await sandbox.spawn(command, None if request.pty else self._pipes.child)
        began = time.perf_counter()
        self._process = process
        judge.filter_loaded = process.filter_loaded
        try:
            streams = self._streams(judge)
            if request.listener is not None:
                await request.listener.started(self.id, self.backend)
            async with anyio.create_task_group() as pumps:
                self._connect(process, streams, pumps)
                report = await self._until_end(process)
                duration_ms = (time.perf_counter() - began) * 1000
                self._stdin.close()
                await release()
            return await self._concluded(report, streams, judge, enforcement, duration_ms)
        finally:
            self._process = None
            process.close()

    def _streams(self, judge: Judge) -> tuple[Stream, Stream]:
        request = self.request
        budget = OutputBudget(request.plan.limits.output_bytes, lambda: self._end("output_limit"))
        deliver = self._deliver if request.listener is not None else None

        async def scan(stream: StreamName, data: bytes) -> None:
            for denial in judge.feed(stream, data):
                if request.listener is not None:
                    await request.listener.denial(self.id, denial)

        out, err = (
            Stream(name, budget, capture=request.capture, deliver=deliver, scan=scan)
            for name in ("stdout", "stderr")
        )
        return out, err

    async def _deliver(self, stream: StreamName, seq: int, data: str, encoding: Encoding) -> None:
        assert self.request.listener is not None
        await self.request.listener.output(self.id, stream, seq, data, encoding)

    def _connect(
        self, process: Process, streams: tuple[Stream, Stream], pumps: TaskGroup
    ) -> None:
        request = self.request
        if process.pty is not None:
            self._stdin.close()
            self._stdin = StdinFeed(os.dup(process.pty), is_pty=True)
            self._pty_ready.set()
            self._pipes.close()
            pumps.start_soon(streams[0].pump, process.pty)
        else:
            self._pipes.close_child_ends()
            pumps.start_soon(streams[0].pump, self._pipes.stdout_read)
            pumps.start_soon(streams[1].pump, self._pipes.stderr_read)
        if request.stdin:
            pumps.start_soon(self._feed, request.stdin)
        elif not request.stdin_open and request.pty is None:
            self._stdin.close()

    async def _feed(self, data: bytes) -> None:
        await self._stdin.write(data)
        if not self.request.stdin_open and self.request.pty is None:
            self._stdin.close()

    async def _until_end(self, process: Process) -> ExitReport:
        """The exit report; a timeout asks politely first. Leaves nothing of the tree alive."""
        try:
            if self._ended_by is not None:
                process.kill()
            with anyio.move_on_after(self.request.plan.timeout_s) as in_time:
                return await process.wait()
            assert in_time.cancelled_caught
            self._ended_by = self._ended_by or "timeout"
            process.signal(signal.SIGTERM, whole_tree=True)
            with anyio.move_on_after(TERM_GRACE_S):
                return await process.wait()
            process.kill()
            with anyio.move_on_after(KILL_GRACE_S):
                return await process.wait()
            return UNKNOWN_END
        except anyio.get_cancelled_exc_class():
            process.kill()
            raise

    async def _concluded(
        self, report: ExitReport, streams: tuple[Stream, Stream], judge: Judge,
        enforcement: Enforcement, duration_ms: float,
    ) -> ExecuteResult:  # fmt: skip
        request = self.request
        how = outcome(report, request.plan.limits, self._ended_by)
        tiers: dict[str, Tier] = dict(enforcement)
        denials, untold = judge.finish(report, how, self._ended_by, tiers)
        exit_code = report.exit_code if how == "exited" else None
        if request.listener is not None:
            for denial in untold:
                await request.listener.denial(self.id, denial)
            await request.listener.exited(self.id, how, exit_code, report.signal)
        return ExecuteResult(
            execution_id=self.id,
            outcome=how,
            exit_code=exit_code,
            signal=report.signal,
            duration_ms=round(duration_ms, 3),
            usage=Usage(
                cpu_ms=round(report.usage.cpu_ms, 3), max_rss_bytes=report.usage.max_rss_bytes
            ),
            stdout=streams[0].captured(),
            stderr=streams[1].captured(),
            denials=denials,
            backend=self.backend,
            enforcement=tiers,
        )

    def never_ran(self, backend: str, enforcement: Enforcement) -> ExecuteResult:
        """Cancelled before there was a sandbox for it."""
        return ExecuteResult(
            execution_id=self.id, outcome="cancelled", exit_code=None, signal=None,
            duration_ms=0.0, usage=Usage(cpu_ms=0.0, max_rss_bytes=0), stdout=Captured(),
            stderr=Captured(), denials=[], backend=backend, enforcement=dict(enforcement),
        )  # fmt: skip

    def close(self) -> None:
        self._stdin.close()
        self._pipes.close()
        self._pty_ready.set()
        self.done.set()


# Not even SIGKILL got an answer (a process in an uninterruptible sleep): the sandbox is torn down.
UNKNOWN_END = ExitReport(None, None, usage=TreeUsage(0.0, 0))
