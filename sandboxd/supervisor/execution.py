"""One command from the open sandbox to the result: input, output, timeout, signals, the end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import TaskGroup

from sandboxd.backends.interface import Backend, Enforcement, explains
from sandboxd.sandbox import Command, ExitReport, Process, Sandbox, Stdio, TreeUsage
from sandboxd.supervisor.guard import NO_GUARD, Guard, Guards, Protected
from sandboxd.supervisor.judge import Bench, Judge
from sandboxd.supervisor.network_reports import host_usage
from sandboxd.supervisor.outcome import Ended, outcome
from sandboxd.supervisor.output import OutputBudget, Stream
from sandboxd.supervisor.pipes import Pipes
from sandboxd.supervisor.pumps import CollectingPump, Pump, StreamingPump
from sandboxd.supervisor.request import ExecuteRequest, Listener
from sandboxd.supervisor.stdin import StdinFeed
from sandboxd.supervisor.window import set_size
from sandboxd.traffic import Traffic
from sandboxd_proto.errors import ExecFailed, InvalidParams, PolicyNotSupported, SandboxdError
from sandboxd_proto.messages.execute import (
    Captured,
    ExecuteResult,
    Tier,
    Usage,
)

log = logging.getLogger(__name__)
TERM_GRACE_S = 2.0
GONE_GRACE_S = 0.005
KILL_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Ground:
    """Where an execution runs.

    `release` lets go of the sandbox early, `leave` is called at the very end. `linger` takes over
    a command that left processes behind, with the pipes that they still hold; None where nothing
    may be left behind. `guards`: None where somebody else watches the protected paths.
    """

    backend: Backend
    sandbox: Sandbox
    enforcement: Enforcement
    release: Callable[[], None]
    leave: Callable[[], None]
    linger: Callable[[Process, list[int]], None] | None = None
    guards: Guards | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    report: ExitReport
    duration_ms: float
    protected: Protected


@dataclass(slots=True)
class Scene:
    """What an execution needs from its start to its end."""

    judge: Judge
    guard: Guard
    process: Process | None = None
    began: float = field(default_factory=time.perf_counter)


class Execution:
    """Exists from the moment that the request was read, so that writes may follow at once."""

    def __init__(self, execution_id: str, request: ExecuteRequest, bench: Bench) -> None:
        self.id = execution_id
        self.request = request
        self.started_at = time.time()
        self.backend = ""
        self.sandbox_id = request.sandbox
        self.over = False
        self._done: anyio.Event | None = None
        self.result: ExecuteResult | None = None
        self.error: SandboxdError | None = None
        self.ground: Ground | None = None
        self._scene: Scene | None = None
        self._refused: Exception | None = None
        self._bench = bench
        self._process: Process | None = None
        self._traffic: Traffic | None = None
        self._ended_by: Ended | None = None
        self._pipes = Pipes(request.passed)
        self._stdin = StdinFeed(self._pipes.give_up(self._pipes.stdin_write))  # -1: passed
        self._pty_ready = anyio.Event() if request.pty is not None else None
        self._input = request.stdin
        self._ended_at = 0.0
        self._appeared: Protected | None = None
        self._early_signals: list[int] = []
        self._early_size: tuple[int, int] | None = None

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
        if self._pty_ready is not None:
            await self._pty_ready.wait()

    def send_signal(self, number: int) -> None:
        """One that comes before the command has been started is delivered when it has."""
        if self._process is not None:
            self._process.signal(number)
        else:
            self._early_signals.append(number)

    def resize(self, rows: int, cols: int) -> None:
        if self.request.pty is None:
            raise InvalidParams("this execution has no terminal", field="execution_id")
        self._early_size = (rows, cols)
        master = self._process.pty if self._process is not None else None
        if master is not None:
            set_size(master, rows, cols)

    def _catch_up(self, process: Process) -> None:
        for number in self._early_signals:
            process.signal(number)
        if self._early_size is not None:
            self.resize(*self._early_size)

    def cancel(self) -> None:
        self._end("cancelled")

    def _end(self, why: Ended) -> None:
        """Kill the whole tree; the first reason is the one that is reported."""
        if self._ended_by is None and not self.over:
            self._ended_by = why
        if self._process is not None:
            self._process.kill()

    @property
    def cancelled(self) -> bool:
        return self._ended_by == "cancelled"

    # what the supervisor does with it

    def begin(self, ground: Ground) -> None:
        """Send the command on its way if that takes no waiting; `run` does the rest."""
        self.ground = ground
        try:
            scene = self._prepare(ground)
            scene.process = ground.sandbox.spawn_now(self._command(ground), self._child_ends)
        except Exception as error:
            self._refused = error

    def _prepare(self, ground: Ground) -> Scene:
        self.backend = ground.backend.name
        if self.request.explain is not None and not explains(ground.backend):
            raise PolicyNotSupported(
                f"the backend {self.backend} cannot explain", field="explain",
                remedy="leave out explain, or use the backend bubblewrap",
            )  # fmt: skip
        request, plan = self.request, self.request.plan
        judge = Judge(
            plan, request.argv, self._bench,
            isolated=self.backend != "none", mounts=ground.backend.mounts,
            pty=request.pty is not None,
        )  # fmt: skip
        guard = ground.guards.take(plan.sandbox) if ground.guards is not None else NO_GUARD
        if plan.sandbox.network.kind == "allow_hosts":
            self._traffic = Traffic()
        self._scene = Scene(judge, guard)
        return self._scene

    @property
    def _child_ends(self) -> Stdio | None:
        return None if self.request.pty else self._pipes.child

    async def run(self, ground: Ground) -> ExecuteResult:
        """To the end. Lets go of the ground as soon as the command's tree is dead."""
        try:
            if self._refused is not None:
                raise self._refused
            scene = self._scene or self._prepare(ground)
            process = scene.process or await ground.sandbox.spawn(
                self._command(ground), self._child_ends
            )
        except BaseException:
            if self._scene is not None and ground.guards is not None:
                ground.guards.done(self._scene.guard)
            raise
        return await self._run(process, scene, ground)

    async def _run(self, process: Process, scene: Scene, ground: Ground) -> ExecuteResult:
        request, judge, guard = self.request, scene.judge, scene.guard
        began = scene.began
        self._process = process
        self._catch_up(process)
        judge.filter_loaded = process.filter_loaded
        streams = self._streams(judge)
        kept = False
        guard.start(process.kill)
        try:
            if request.listener is not None or request.pty is not None:
                await self._started(process)
                began = time.perf_counter()
            if request.listener is None and self._input_fits(process):
                pumps = self._collect(process, streams)
                report = await self._until_end(process, ground, guard, pumps)
            else:
                async with anyio.create_task_group() as tasks:
                    self._feed_later(process, tasks)
                    pumps = self._pumps(process, streams, tasks)
                    if self._traffic is not None and request.listener is not None:
                        tasks.start_soon(self._tell_refusals, self._traffic, judge)
                    report = await self._until_end(process, ground, guard, pumps)
                    self._close_traffic()
            duration_ms = (self._ended_at - began) * 1000
            if ground.linger is not None and await self._left_behind(process):
                ground.linger(process, self._outputs(process))
                kept = True
            ending = Ending(report, duration_ms, self._appeared or ())
            return await self._concluded(ending, streams, judge, ground.enforcement)
        finally:
            self._process = None
            self._close_traffic()
            await self._swept(process, guard)
            if not kept:
                asyncio.get_running_loop().call_soon(process.close)  # the answer goes first
            if ground.guards is not None:
                ground.guards.done(guard)

    async def _started(self, process: Process) -> None:
        try:
            await process.started()
        except ExecFailed:
            if self._ended_by is None:
                raise

    async def _swept(self, process: Process, guard: Guard) -> None:
        """However it ended: what appeared of the protected paths does not stay."""
        if not guard.needed or self._appeared is not None:
            return
        with anyio.CancelScope(shield=True):
            process.kill()
            with anyio.move_on_after(KILL_GRACE_S), suppress(SandboxdError):  # it never started
                await process.wait()
            for path, moved_to in guard.conclude():
                log.warning("protected path %s appeared; it is now %s", path, moved_to or "gone")

    def _command(self, ground: Ground) -> Command:
        request, plan = self.request, self.request.plan
        return Command(
            argv=request.argv, env=plan.env, cwd=plan.cwd, limits=plan.limits,
            syscall_policy=plan.syscall_policy, pty=request.pty,
            keep_background=ground.linger is not None, traffic=self._traffic,
            explain=request.explain is not None,
        )  # fmt: skip

    async def _tell_refusals(self, traffic: Traffic, judge: Judge) -> None:
        assert self.request.listener is not None
        while refusals := await traffic.each_refusal():
            for refusal in refusals:
                for denial in judge.refused(refusal):
                    await self.request.listener.denial(self.id, denial)

    def _close_traffic(self) -> None:
        if self._traffic is not None:
            self._traffic.close()

    async def _left_behind(self, process: Process) -> bool:
        """Whether the command left processes running (or may have: it does not say in time)."""
        with anyio.move_on_after(GONE_GRACE_S):
            await process.wait()
            return False
        return True

    def _outputs(self, process: Process) -> list[int]:
        """What processes left behind may still print to; whoever gets this closes it."""
        if process.pty is not None:
            return [os.dup(process.pty)]
        ends = (self._pipes.stdout_read, self._pipes.stderr_read)
        return [self._pipes.give_up(fd) for fd in ends if fd >= 0]

    # input and output

    def _streams(self, judge: Judge) -> tuple[Stream, Stream]:
        request = self.request
        budget = OutputBudget(request.plan.limits.output_bytes, lambda: self._end("output_limit"))
        out, err = (
            Stream(name, budget, judge.feed, capture=request.capture)
            for name in ("stdout", "stderr")
        )
        return out, err

    def _input_fits(self, process: Process) -> bool:
        """Hands over the input without waiting, if the pipe takes all of it."""
        self._hold_ends(process)
        self._input = self._stdin.write_now(self._input)
        if not self._input and self._no_more_input:
            self._stdin.close()
        return not self._input

    @property
    def _no_more_input(self) -> bool:
        return not self.request.stdin_open and self.request.pty is None

    def _hold_ends(self, process: Process) -> None:
        """The child has its ends: ours are the only ones left."""
        if process.pty is not None and self._pty_ready and not self._pty_ready.is_set():
            self._stdin.close()
            self._stdin = StdinFeed(os.dup(process.pty), is_pty=True)
            self._pty_ready.set()
            self._pipes.close()
        self._pipes.close_child_ends()

    def _feed_later(self, process: Process, tasks: TaskGroup) -> None:
        if not self._input_fits(process):
            tasks.start_soon(self._feed, self._input)

    async def _feed(self, data: bytes) -> None:
        with suppress(InvalidParams):  # closed meanwhile: the command has ended
            await self._stdin.write(data)
        if self._no_more_input:
            self._stdin.close()

    def _ends(self, process: Process, streams: tuple[Stream, Stream]) -> list[tuple[Stream, int]]:
        if process.pty is not None:
            return [(streams[0], process.pty)]
        ends = (self._pipes.stdout_read, self._pipes.stderr_read)
        return [pair for pair in zip(streams, ends, strict=True) if pair[1] >= 0]

    def _collect(self, process: Process, streams: tuple[Stream, Stream]) -> list[Pump]:
        return [CollectingPump(stream, fd) for stream, fd in self._ends(process, streams)]

    def _pumps(
        self, process: Process, streams: tuple[Stream, Stream], tasks: TaskGroup
    ) -> list[Pump]:
        listener = self.request.listener
        if listener is None:
            return self._collect(process, streams)
        announced = anyio.Event()
        tasks.start_soon(self._announce, listener, announced)
        return [
            StreamingPump(stream, fd, self.id, listener, tasks, announced)
            for stream, fd in self._ends(process, streams)
        ]

    async def _announce(self, listener: Listener, announced: anyio.Event) -> None:
        """A task of its own: the command's clock runs also while nobody reads this."""
        await listener.started(self.id, self.backend)
        announced.set()

    # the end

    async def _until_end(
        self, process: Process, ground: Ground, guard: Guard, pumps: list[Pump]
    ) -> ExitReport:
        try:
            report = await self._until_exit(process, tree=ground.linger is None)
            self._ended_at = time.perf_counter()
            # The tree is dead. A client that reads slowly must not keep what it left in place.
            guard.stop()
            self._appeared = guard.conclude()
            self._stdin.close()
            ground.release()
            for pump in pumps:
                await pump.finish()
            return report
        finally:
            for pump in pumps:
                pump.close()

    async def _until_exit(self, process: Process, *, tree: bool) -> ExitReport:
        """The exit report; a timeout asks politely first. Leaves nothing of the tree alive."""
        try:
            if self._ended_by is not None:
                process.kill()
            with anyio.move_on_after(self.request.plan.timeout_s):
                report = await process.wait(tree=tree)
                # A tree that was killed is waited for whole.
                return report if self._ended_by is None else await process.wait()
            self._ended_by = self._ended_by or "timeout"
            process.signal(signal.SIGTERM, whole_tree=True)
            with anyio.move_on_after(TERM_GRACE_S):
                return await process.wait()
            process.kill()
            with anyio.move_on_after(KILL_GRACE_S):
                return await process.wait()
            return UNKNOWN_END
        except ExecFailed:
            if self._ended_by is None:
                raise
            return ENDED_EARLY
        except anyio.get_cancelled_exc_class():
            process.kill()
            raise

    async def _concluded(
        self, ending: Ending, streams: tuple[Stream, Stream], judge: Judge,
        enforcement: Enforcement,
    ) -> ExecuteResult:  # fmt: skip
        request, report = self.request, ending.report
        how = outcome(report, request.plan.limits, self._ended_by)
        tiers: dict[str, Tier] = {**enforcement, **dict(report.tiers)}
        protected = (*ending.protected, *report.protected)
        denials, untold = judge.finish(
            report, how, self._ended_by, tiers, protected, self._traffic
        )
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
            duration_ms=round(ending.duration_ms, 3),
            usage=Usage(
                cpu_ms=round(report.usage.cpu_ms, 3), max_rss_bytes=report.usage.max_rss_bytes
            ),
            stdout=streams[0].captured(),
            stderr=streams[1].captured(),
            denials=denials,
            backend=self.backend,
            enforcement=tiers,
            network_usage=host_usage(self._traffic),
            explanation=judge.explanation(request.explain, denials, report.evidence),
        )

    def never_ran(self, backend: str, enforcement: Enforcement) -> ExecuteResult:
        """Cancelled before there was a sandbox for it."""
        return ExecuteResult(
            execution_id=self.id, outcome="cancelled", exit_code=None, signal=None,
            duration_ms=0.0, usage=Usage(cpu_ms=0.0, max_rss_bytes=0), stdout=Captured(),
            stderr=Captured(), denials=[], backend=backend, enforcement=dict(enforcement),
        )  # fmt: skip

    async def finished(self) -> None:
        """Until it has a result or an error."""
        if self._done is None:
            self._done = anyio.Event()
            if self.over:
                self._done.set()
        await self._done.wait()

    def close(self) -> None:
        """Its descriptors go a moment later: the answer goes first."""
        self.over = True
        self._input = b""
        if self.request.stdin:
            self.request = replace(self.request, stdin=b"")
        asyncio.get_running_loop().call_soon(self._close_descriptors)
        if self._pty_ready is not None:
            self._pty_ready.set()
        if self._done is not None:
            self._done.set()

    def _close_descriptors(self) -> None:
        self._stdin.close()
        self._pipes.close()


# Ended by us before it had become the command.
ENDED_EARLY = ExitReport(None, 9, usage=TreeUsage(0.0, 0))
# Not even SIGKILL got an answer (a process in an uninterruptible sleep): the sandbox is torn down.
UNKNOWN_END = ExitReport(None, None, usage=TreeUsage(0.0, 0))
