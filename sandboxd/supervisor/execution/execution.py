"""One command from the open sandbox to the result: start, timeout, the end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from msgspec.structs import replace

from sandboxd import event_loop
from sandboxd.backends.interface import Enforcement
from sandboxd.policy.mounts.mask_links import first_changed
from sandboxd.supervisor.classifier import Classifier, HostTraits
from sandboxd.supervisor.deferred_work import DeferredWork
from sandboxd.supervisor.execution.control import ExecutionControl
from sandboxd.supervisor.execution.lease import Lease
from sandboxd.supervisor.execution.live_reports import LiveReports
from sandboxd.supervisor.execution.lost_files import lost_files, may_lose_files
from sandboxd.supervisor.execution.output_log import OutputLog
from sandboxd.supervisor.execution.protected_paths_check import ProtectedPathsCheck, cleans
from sandboxd.supervisor.execution.result import (
    ENDED_EARLY,
    Ended,
    Ending,
    build_result,
    drop_data,
    outcome,
)
from sandboxd.supervisor.execution.stdio.command_io import CommandIo, Streams, open_streams
from sandboxd.supervisor.execution.stdio.output import OutputBudget
from sandboxd.supervisor.execution.stdio.pumps import Pump
from sandboxd.supervisor.execution.timeout import has_left_processes, wait_for_exit
from sandboxd.supervisor.execution.unsupported import refuse_unsupported
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd.traffic import AskHost, GateRefusal, Traffic
from sandboxd.types import Attempt, Command, CopyingProcess, ExitReport, Process
from sandboxd_proto.errors import ExecFailed, InternalError, SandboxdError, SandboxUnavailable
from sandboxd_proto.messages.execute import ExecuteResult
from sandboxd_proto.messages.execution import State


@dataclass(slots=True)
class RunState:
    """What an execution needs from its start to its end. `began`: before the command is sent, which
    may run before its start is reported."""

    classifier: Classifier
    workspace: ProtectedPathsCheck
    began: float = field(default_factory=time.perf_counter)


class Execution:
    """Made when the request is read, so that the client's next message may write to it."""

    def __init__(
        self, execution_id: str, request: ExecuteRequest, traits: HostTraits, deferred: DeferredWork
    ) -> None:
        self.id = execution_id
        self.request = request
        self.started_at = time.time()
        self.backend = ""
        self.sandbox_id = request.sandbox
        self.approval: str | None = None
        self.recorded = False
        self.spawned = False
        self.successor: Execution | None = None
        self.refused_hosts: tuple[GateRefusal, ...] = ()
        self.result: ExecuteResult | None = None
        self.error: SandboxdError | None = None
        self._io = CommandIo(request)
        self.control = ExecutionControl(execution_id, request, self._io)
        self._done: anyio.Event | None = None
        self._traits = traits
        self._deferred = deferred
        self._traffic: Traffic | None = None
        self._attempts: LiveReports[Attempt] | None = None
        self._moved: LiveReports[tuple[str, str]] = LiveReports()
        self._ended_at = 0.0
        self._lost: SandboxdError | None = None  # why there is no result although it ran
        self._warnings: list[str] = []

    @property
    def state(self) -> State:
        """`pending`: it waits for a sandbox or an approval."""
        if self.control.over:
            return "ended"
        return "running" if self.backend else "pending"

    @property
    def over(self) -> bool:
        return self.control.over

    @property
    def cancelled(self) -> bool:
        return self.control.cancelled

    @property
    def cancel_asked(self) -> anyio.Event:
        return self.control.cancel_asked

    def warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.append(text)

    def tell_progress(self, phase: str, done: int, total: int | None) -> None:
        """Of the sandbox that it waits for."""
        if self.request.listener is not None:
            self.request.listener.progress(self.id, phase, done, total)

    def cancel(self) -> None:
        self.end("cancelled")

    def end(self, why: Ended) -> None:
        """End it while it waits for an approval or a sandbox, or runs; and its further attempts."""
        if why == "cancelled":
            self.control.cancel()
        else:
            self.control.end(why)
            self.control.ask_to_cancel()
        if self.successor is not None:
            self.successor.end(why)

    def _prepare(self, lease: Lease) -> RunState:
        self.backend = lease.backend.name
        able = lease.backend.capabilities
        refuse_unsupported(self.request, able, self.backend)
        request, plan = self.request, self.request.plan
        classifier = Classifier(
            plan, request.argv, self._traits, isolated=able.isolates, mounts=able.mounts,
            pty=request.pty is not None and not request.pty.stderr_apart,
            plan_flags=request.plan_flags,
        )  # fmt: skip
        workspace = ProtectedPathsCheck(self.id, plan, lease, self.started_at)
        if request.listener is not None:
            workspace.hear_moved(lambda path, moved_to: self._moved.note((path, moved_to)))
        if plan.sandbox.network.kind == "allow_hosts":
            self._traffic = Traffic(self._ask_egress())
        elif plan.sandbox.network.kind == "deny" and request.listener is not None:
            self._attempts = LiveReports()
        elif able.inherit_warning and plan.sandbox.network.kind == "inherit":
            self.warn(able.inherit_warning)
        return RunState(classifier, workspace)

    def _ask_egress(self) -> AskHost | None:
        ask = self.request.ask_egress
        if ask is None:
            return None

        async def ask_host(traffic: Traffic, host: str, port: int) -> bool:
            return await ask(self.id, traffic, host, port)

        return ask_host

    def _command(self, lease: Lease) -> Command:
        request, plan = self.request, self.request.plan
        return Command(
            argv=request.argv, env=plan.env, cwd=plan.cwd, limits=plan.limits,
            syscall_policy=plan.syscall_policy, pty=request.pty,
            keep_background=lease.linger is not None, traffic=self._traffic,
            explain=request.explain is not None, timeout_s=plan.timeout_s,
            progress=self.tell_progress if request.listener is not None else None,
            attempted=self._attempts.note if self._attempts is not None else None,
        )  # fmt: skip

    async def run(self, lease: Lease) -> ExecuteResult:
        """Run the command to its end. The lease is released as soon as its tree is dead."""
        state = self._prepare(lease)
        try:
            if cleans(self.request.argv):
                await event_loop.enter_task()
                await state.workspace.remember_kept()
                state.began = time.perf_counter()
            self.spawned = True
            process = await self._spawn(lease)
        except BaseException:
            state.workspace.close()
            raise
        return await self._run(process, state, lease)

    async def _spawn(self, lease: Lease) -> Process:
        """Where folders are copied first, that takes a while, and can be cancelled."""
        command, ends = self._command(lease), self._io.child_ends
        process = lease.sandbox.spawn_now(command, ends)
        if process is not None:
            return process
        await event_loop.enter_task()
        if not lease.backend.capabilities.copies:
            return await lease.sandbox.spawn(command, ends)
        with anyio.CancelScope() as self.control.waiting:
            try:
                return await lease.sandbox.spawn(command, ends)
            finally:
                self.control.waiting = None
        raise SandboxUnavailable("the execution was cancelled before its command ran")

    async def _run(self, process: Process, state: RunState, lease: Lease) -> ExecuteResult:
        request, classifier, workspace, io = (
            self.request,
            state.classifier,
            state.workspace,
            self._io,
        )
        began = state.began
        self.control.attach(process)
        classifier.filter_loaded = process.filter_loaded
        most = request.plan.limits.output_bytes
        budget = OutputBudget(most, lambda: self.control.end("output_limit"))
        streams = open_streams(classifier, budget, request)
        kept = False
        workspace.guard.start(process.kill)
        try:
            if request.listener is not None or request.pty is not None:
                await event_loop.enter_task()
                await self._until_started(process, lease)
                if lease.backend.capabilities.copies:  # its folders were sent first
                    began = time.perf_counter()
            io.take_over(process)
            feeding = event_loop.Begun(io.feed()) if io.feeds else None
            if request.listener is None and (feeding is None or feeding.done):
                pumps = [*io.collect(process, streams, self.control.fail)]
                pumps += io.relay_passed(classifier, budget)
                report = await self._until_end(process, lease, workspace, pumps)
            else:
                await event_loop.enter_task()
                async with anyio.create_task_group() as tasks:
                    if feeding is not None:
                        tasks.start_soon(_finish, feeding)
                    pumps = self._pumps(process, streams, tasks)
                    pumps += io.relay_passed(classifier, budget)
                    if self._traffic is not None and request.listener is not None:
                        tasks.start_soon(self._tell_refusals, self._traffic, classifier)
                    if self._attempts is not None:
                        self._attempts.tell_in(tasks, partial(self._tell_attempt, classifier))
                    if request.listener is not None:
                        self._moved.tell_in(tasks, partial(self._tell_moved, classifier))
                    try:
                        report = await self._until_end(process, lease, workspace, pumps)
                    except SandboxdError as error:
                        self._lost = error
                        tasks.cancel_scope.cancel()
                    finally:
                        if self._attempts is not None:
                            self._attempts.close()
                        self._moved.close()
                    self._close_traffic()
            self._close_traffic()  # the result has what the audit trail has
            if self._lost is not None:  # not inside the task group, which would wrap it
                raise self._lost
            duration_ms = (self._ended_at - began) * 1000
            if lease.linger is not None and not report.whole and await has_left_processes(process):
                lease.linger(process, io.give_up_outputs(process))
                kept = True
            return await self._conclude(report, duration_ms, streams, state, lease.enforcement)
        finally:
            self.control.detach()
            self._close_traffic()
            if workspace.guard.needed and workspace.appeared is None:
                await workspace.sweep(process)
            if not kept:
                self._deferred.add(process.close)
            self._deferred.add(workspace.close)

    def _pumps(self, process: Process, streams: Streams, tasks: TaskGroup) -> list[Pump]:
        listener = self.request.listener
        if listener is None:
            return self._io.collect(process, streams, self.control.fail)
        who = (self.id, self.backend)
        return self._io.stream(process, streams, who, listener, tasks)

    async def _tell_refusals(self, traffic: Traffic, classifier: Classifier) -> None:
        assert self.request.listener is not None
        while refusals := await traffic.each_refusal():
            for refusal in refusals:
                for denial in classifier.refused(refusal):
                    await self.request.listener.denial(self.id, denial)

    async def _tell_attempt(self, classifier: Classifier, attempt: Attempt) -> None:
        assert self.request.listener is not None
        for denial in classifier.attempted(attempt):
            await self.request.listener.denial(self.id, denial)

    async def _tell_moved(self, classifier: Classifier, moved: tuple[str, str]) -> None:
        assert self.request.listener is not None
        for denial in classifier.moved_aside(*moved):
            await self.request.listener.denial(self.id, denial)

    def _close_traffic(self) -> None:
        if self._traffic is not None:
            self._traffic.close()
            self.refused_hosts = tuple(self._traffic.refusals)

    async def _until_started(self, process: Process, lease: Lease) -> None:
        try:
            await process.started()
        except ExecFailed:
            if self.control.ended_by is None:
                raise
        except SandboxUnavailable:
            if lease.settle is None:  # otherwise the wait for the end finds the reason
                raise

    async def _until_end(
        self, process: Process, lease: Lease, workspace: ProtectedPathsCheck, pumps: list[Pump]
    ) -> ExitReport:
        control = self.control
        try:
            report = await self._until_exit(process, lease, workspace)
            if self._traffic is not None:
                self._traffic.catch_up()
            if report.limit == "timeout":  # the reaper's clock ended before the daemon's
                control.ended_by = control.ended_by or control.at_timeout
                report = replace(report, limit=None)
            self._ended_at = time.perf_counter()
            if self._traffic is not None:  # the gate reads sockets of its own, and goes first
                await event_loop.enter_task()
                await anyio.lowlevel.checkpoint()
            if lease.backend.capabilities.copies and isinstance(process, CopyingProcess):
                report = await self._bring_back(process, report)
            # The tree is dead. Protected paths are checked before the output is sent: a client may
            # read slowly.
            killed = report.signal is not None or control.ended_by is not None
            await workspace.conclude(killed=killed)
            if workspace.lost is not None:
                report = replace(report, lost=workspace.lost)
            report = self._check_mask_links(report, workspace)
            self._io.close_stdin()
            if report.exit_code == 0 and not killed and workspace.ends_with_command:
                await self._tell_lost_files(lease)
            lease.release()
            self._lost = self._lost or workspace.error
            if control.failed:
                self._lost = InternalError("the command was ended: its output could not be read")
                return report
            for pump in pumps:
                await pump.finish()
            return report
        finally:
            for pump in pumps:
                pump.close()

    def _check_mask_links(self, report: ExitReport, workspace: ProtectedPathsCheck) -> ExitReport:
        if workspace.error is not None:  # its mounts do not answer
            return report
        changed = first_changed(self.request.plan.mask_links)
        if changed is None:
            return report
        why = f"{changed} led to what is hidden, and was replaced while the command ran"
        return replace(report, lost=report.lost or why)

    async def _tell_lost_files(self, lease: Lease) -> None:
        plan, argv = self.request.plan, self.request.argv
        if may_lose_files(plan, argv):
            self._warnings += await lost_files(plan, argv, lease)

    async def _bring_back(self, process: CopyingProcess, report: ExitReport) -> ExitReport:
        """While the guard watches: what comes back is judged as if the command had written it."""
        try:
            back = await process.bring_back()
        except SandboxdError as error:
            self._lost = error
            return report
        self._warnings += back.warnings
        protected = (*report.protected, *back.protected)
        return replace(report, protected=protected, lost=report.lost or back.lost)

    async def _until_exit(
        self, process: Process, lease: Lease, workspace: ProtectedPathsCheck
    ) -> ExitReport:
        """Wait for the exit. A shared sandbox that was ended for a protected path ends this command
        too."""
        timeout_s = self.request.plan.timeout_s
        try:
            return await wait_for_exit(process, self.control, timeout_s, tree=lease.linger is None)
        except SandboxUnavailable:
            if not await workspace.settle_early():
                raise
            return ENDED_EARLY

    async def _conclude(
        self, report: ExitReport, duration_ms: float, streams: Streams, state: RunState,
        enforcement: Enforcement,
    ) -> ExecuteResult:  # fmt: skip
        request, ended_by, classifier = self.request, self.control.ended_by, state.classifier
        how = outcome(report, request.plan.limits, ended_by)
        tiers = {**enforcement, **dict(report.tiers)}
        protected = (*(state.workspace.appeared or ()), *report.protected)
        killed = "cancelled" if state.workspace.guard.ended_for is not None else ended_by
        denials, untold = await classifier.finish(
            report, how, killed, tiers, protected, self._traffic
        )
        captured = (await streams[0].captured(), await streams[1].captured())
        if how == "isolation_lost":  # what the command read is unknown, so its output is withheld
            captured = (drop_data(captured[0]), drop_data(captured[1]))
            denials = [one for one in denials if one.confidence == "high"]
            untold = [one for one in untold if one.confidence == "high"]
        warnings = [*self._warnings, *state.workspace.warnings]
        ending = Ending(report, how, duration_ms, tiers, captured, denials, warnings, self._traffic)
        if request.listener is not None:
            for denial in untold:
                await request.listener.denial(self.id, denial)
            await request.listener.exited(self.id, how, ending.exit_code, report.signal)
        ending.explanation = await classifier.explanation(request.explain, denials, report.evidence)
        return build_result(self.id, request, self.backend, ending, self.approval)

    async def finished(self) -> None:
        """Wait until it has a result or an error."""
        if self._done is None:
            self._done = anyio.Event()
            if self.control.over:
                self._done.set()
        await self._done.wait()

    def close(self) -> None:
        """Its descriptors go a moment later: after the answer was sent."""
        self.control.over = True
        if isinstance(self.request.listener, OutputLog):
            self.request.listener.conclude(self.result)
        if self.request.stdin:
            self.request = replace(self.request, stdin=b"")
        self._deferred.add(self._io.close)
        self._io.forget_input()
        if self._done is not None:
            self._done.set()

    def release(self) -> None:
        """Close its descriptors and drop its input before another attempt; waiters go on
        waiting."""
        self._deferred.add(self._io.close)
        self._io.forget_input()


async def _finish(feeding: event_loop.Begun[None]) -> None:
    await feeding
