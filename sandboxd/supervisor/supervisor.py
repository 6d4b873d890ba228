"""The supervisor: accepts executions, gets each a sandbox, and ends everything it started."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
from anyio.abc import TaskGroup

from sandboxd import event_loop
from sandboxd.backends.interface import Backend, Enforcement
from sandboxd.backends.registry import Registry
from sandboxd.backends.select import refusal, select, works_here
from sandboxd.policy.plan import Plan
from sandboxd.policy.request import Machine
from sandboxd.progress import ReportProgress
from sandboxd.supervisor.background import Background, keep_running
from sandboxd.supervisor.budgets import ledger
from sandboxd.supervisor.classifier import Classifier, HostTraits
from sandboxd.supervisor.execution.execution import Execution
from sandboxd.supervisor.execution.lease import Lease
from sandboxd.supervisor.execution.registry import Executions
from sandboxd.supervisor.execution.result import never_ran
from sandboxd.supervisor.hanging_mount_checks import MountChecks
from sandboxd.supervisor.recorder import Recorder
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd.supervisor.sandboxes.persistent import (
    UNNAMED,
    MadeFrom,
    NameAndScope,
    PersistentSandbox,
    PersistentSandboxes,
)
from sandboxd.supervisor.sandboxes.pool import Held, WarmPool
from sandboxd.supervisor.sessions.session import Session
from sandboxd.types import PathChanged
from sandboxd.workspace_guard.guards import Guards
from sandboxd_proto.errors import (
    InternalError,
    SandboxdError,
    SandboxUnavailable,
    ShuttingDown,
)
from sandboxd_proto.messages.execute import ExecuteResult

log = logging.getLogger(__name__)
# What follows from the denials of an execution: an offer, or further attempts.
FollowUp = Callable[[Execution, ExecuteResult], Awaitable[ExecuteResult]]
END_ALL_S = 10.0


class Supervisor:
    """Made by `running`, which owns every task that it starts."""

    def __init__(
        self, machine: Machine, registry: Registry, traits: HostTraits, tasks: TaskGroup,
        recorder: Recorder,
    ) -> None:  # fmt: skip
        self.machine = machine
        self.registry = registry
        self.recorder = recorder
        self._traits = traits
        self.executions = Executions(traits, machine.config.max_executions)
        self._background = self.background = Background(tasks)
        self.mounts = MountChecks()
        self.pool = WarmPool(machine.config.pool, self._background, self.mounts)
        self.sandboxes = PersistentSandboxes(self._background, machine.forwards_folder)
        self.sandboxes.on_end = self._record_sandbox_end
        self._guards = Guards(self._start_in_thread)
        self._stopping = False
        self.follow_up: FollowUp | None = None

    # executing

    def accept(self, request: ExecuteRequest) -> Execution:
        """Register it; from here on its id can be used. Nothing has been started."""
        if self._stopping:
            raise ShuttingDown("the daemon is shutting down", remedy="send the request again later")
        return self.executions.add(request)

    def _record_start(self, execution: Execution, lease: Lease) -> None:
        """Record the start before the command is sent; SandboxUnavailable if a required record
        fails."""
        request = execution.request
        execution.recorded = True
        self.recorder.started(
            execution.id, _session_id(request), request.client, request.argv, request.plan.env,
            {"cwd": request.plan.cwd, "backend": lease.backend.name,
             "preset": request.plan.preset, "workspace": request.plan.workspace,
             "sandbox": execution.sandbox_id, "approval": execution.approval,
             "grants": list(request.grants), "detached": request.detach},
        )  # fmt: skip

    def _record_end(self, execution: Execution) -> None:
        session = _session_id(execution.request)
        if execution.result is not None:
            self.recorder.ended(session, execution.result, execution.request.plan.env)
            self.recorder.egress_refused(session, execution.id, execution.refused_hosts)
        elif execution.error is not None:
            self.recorder.failed(execution.id, session, execution.error)

    async def run(self, execution: Execution) -> ExecuteResult:
        """Run an accepted execution to its end, and what follows from its denials.

        If a sandbox is ready for it, the command is sent before the first wait.
        """
        try:
            result = await self._attempt(execution)
            reports = not result.denials or execution.request.on_denial == "report"
            if not reports and self.follow_up is not None:
                self.executions.deferred.run()  # the answer may wait for an approval
                await event_loop.enter_task()
                result = await self.follow_up(execution, result)
        except SandboxdError as error:
            execution.error = error
            raise
        except BaseException:
            execution.error = InternalError("the execution was aborted")
            raise
        else:
            execution.result = result
            return result
        finally:
            self.executions.ended(execution)
            self._leave_session(execution)

    async def run_again(self, before: Execution, request: ExecuteRequest) -> ExecuteResult:
        """The same command from the start in a fresh sandbox, under the same id."""
        execution = self.executions.replace(before, request)
        self.start_clock(execution)
        try:
            return await self._attempt(execution)
        finally:
            execution.close()

    async def _attempt(self, execution: Execution) -> ExecuteResult:
        """Run the command once, and record it."""
        try:
            result = await self._run_in_sandbox(execution)
        except SandboxdError as error:
            if isinstance(error, PathChanged) and not execution.spawned:
                error.facts["again"] = True
            execution.error = error
            raise
        else:
            execution.result = result
            return result
        finally:
            self.stop_clock(execution)
            if execution.recorded:
                self.executions.deferred.add(partial(self._record_end, execution))

    async def _run_in_sandbox(self, execution: Execution) -> ExecuteResult:
        lease = await self._wait_for_lease(execution)
        if lease is None:
            return never_ran(execution.id, execution.request, None, {})
        try:
            if execution.control.cancelled:
                return never_ran(
                    execution.id, execution.request, lease.backend.name, lease.enforcement
                )
            self._record_start(execution, lease)
            return await execution.run(lease)
        except SandboxUnavailable:
            # An engine that is asked to start and to kill a container at once may refuse the start.
            if not execution.control.cancelled:
                raise
            return never_ran(execution.id, execution.request, lease.backend.name, lease.enforcement)
        finally:
            lease.leave()

    def _leave_session(self, execution: Execution) -> None:
        session = execution.request.session
        if session is not None:
            self.stop_clock(execution)
            session.executions.discard(execution.id)
            if not session.connections:
                session.left_at = time.monotonic()

    def join_session(self, execution: Execution) -> None:
        """Keep its session open while it waits or runs."""
        if execution.request.session is not None:
            execution.request.session.executions.add(execution.id)

    def start_clock(self, execution: Execution) -> None:
        """From here on the execution counts for its session's budget."""
        session = execution.request.session
        if session is not None:
            ledger.begin(session.account, execution.id, time.monotonic())

    def stop_clock(self, execution: Execution) -> None:
        session = execution.request.session
        if session is not None:
            ledger.end(session.account, execution.id, time.monotonic())

    def catch_up(self) -> None:
        """Before a request: do what was left to do after earlier answers."""
        self.executions.deferred.run()

    def give_up(self, execution: Execution) -> None:
        """End an execution that was refused or cancelled while it waited for an approval."""
        self.executions.ended(execution)
        self._leave_session(execution)
        execution.request.passed.close()

    def start_background(self, work: Callable[[], Awaitable[None]]) -> None:
        self._background.start(work)

    def detach(self, execution: Execution) -> None:
        self._background.start(self._run_detached, execution)

    async def _run_detached(self, execution: Execution) -> None:
        try:
            await self.run(execution)
        except SandboxdError:
            pass  # the waiting request gets the error
        except Exception:
            log.exception("a detached execution failed")

    # sandboxes

    async def _wait_for_lease(self, execution: Execution) -> Lease | None:
        """None if it was cancelled meanwhile: sandboxes are opened a few at a time."""
        if execution.sandbox_id is not None:
            return self._lease_persistent(self.sandboxes.find(execution.sandbox_id), execution)
        finding = event_loop.Begun(self._find_lease(execution))
        if finding.done:
            return finding.result()
        await event_loop.enter_task()
        with anyio.CancelScope() as execution.control.waiting:
            if execution.control.ended_by is not None:  # by a message that came with the request
                execution.control.waiting.cancel()
            try:
                return await finding
            finally:
                execution.control.waiting = None
        return None

    async def _find_lease(self, execution: Execution) -> Lease:
        backend, enforcement, held = await self._take(
            execution.request.plan, execution.request.owner, execution.tell_progress
        )
        return self._lease_pooled(backend, enforcement, held)

    def _lease_pooled(self, backend: Backend, enforcement: Enforcement, held: Held) -> Lease:
        released = False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                self.executions.deferred.add(partial(self.pool.let_go, held.hold))

        return Lease(
            backend=backend, sandbox=held.sandbox, enforcement=enforcement, release=release,
            leave=release, mounts=self.mounts, guards=self._guards,
        )  # fmt: skip

    def _lease_persistent(self, kept: PersistentSandbox, execution: Execution) -> Lease:
        watched = kept.watched
        enforcement = kept.enforcement(execution.request.plan)
        kept.commands.add(execution)
        if watched is not None:
            watched.begin()

        def leave() -> None:
            if watched is not None:
                watched.end()
            kept.commands.discard(execution)
            kept.last_used = time.monotonic()

        return Lease(
            backend=kept.backend, sandbox=kept.sandbox, enforcement=enforcement,
            release=_do_nothing, leave=leave, mounts=self.mounts,
            linger=partial(self.sandboxes.linger, watched),
            settle=watched.settle if watched is not None else None,
            failures=watched.failures if watched is not None else None,
            roots=watched.roots if watched is not None else None,
            hear_moved=watched.hear_moved if watched is not None else None,
        )  # fmt: skip

    def _start_in_thread(self, work: Callable[[], None]) -> None:
        self._background.start(anyio.to_thread.run_sync, work)

    async def _take(
        self, plan: Plan, owner: object, tell: ReportProgress | None
    ) -> tuple[Backend, Enforcement, Held]:
        failures: list[SandboxUnavailable] = []
        for backend, enforcement in select(plan, self.machine.config, self.registry):
            try:
                held = await self.pool.take(backend, plan.sandbox, owner, tell)
                return backend, enforcement, held
            except SandboxUnavailable as error:
                if await works_here(backend):
                    # This backend cannot open this sandbox. Another one would enforce less than
                    # `manifest/check` says.
                    raise
                failures.append(error)
        raise refusal(failures)

    async def create_sandbox(
        self, plan: Plan, made_from: MadeFrom, idle_s: float | None,
        session: Session | None = None, named: NameAndScope = UNNAMED,
        tell: ReportProgress | None = None,
    ) -> PersistentSandbox:  # fmt: skip
        if self._stopping:
            raise ShuttingDown("the daemon is shutting down", remedy="send the request again later")
        idle = self.sandboxes.admit(idle_s)
        self.sandboxes.check_name(named.name)
        backend, _, held = await self._take(plan, session, tell)
        try:
            self.sandboxes.check_name(named.name)
            able = backend.capabilities
            classifier = Classifier(
                plan, (), self._traits, isolated=able.isolates, mounts=able.mounts, pty=False
            )
            made = PersistentSandbox(
                plan, made_from, backend, held.sandbox, held.hold, idle, classifier
            )
            made.id = named.id or made.id
            made.session = session
            made.scope, made.name, made.connection = named.scope, named.name, named.connection
            self.recorder.write(
                "sandbox.created",
                {"sandbox": made.id, "name": made.name, "scope": made.scope,
                 "backend": backend.name, "workspace": plan.workspace},
                session=session.id if session is not None else None, must=True,
            )  # fmt: skip
        except BaseException:
            self.pool.let_go(held.hold)
            raise
        try:
            self.sandboxes.add(made)
        except BaseException:  # a folder was exchanged meanwhile
            self._record_sandbox_end(made)
            self.pool.let_go(held.hold)
            raise
        return made

    def _record_sandbox_end(self, ended: PersistentSandbox) -> None:
        session = ended.session.id if ended.session is not None else None
        self.recorder.write("sandbox.destroyed", {"sandbox": ended.id}, session=session)

    # ending

    def abandon(self, owner: object) -> None:
        """End the executions of a connection that has ended, except for detached ones."""
        self.sandboxes.end_of_connection(owner)
        for execution in self.executions:
            if execution.request.owner is owner and not execution.request.detach:
                execution.cancel()

    async def stop(self) -> None:
        """Refuse new work and end everything; returns when no execution is left (bounded)."""
        self._stopping = True
        with anyio.move_on_after(END_ALL_S):
            while len(self.executions):
                waiting = list(self.executions)
                for execution in waiting:
                    execution.cancel()
                await waiting[0].finished()
        self.executions.deferred.run()
        await self.sandboxes.close()
        await self.pool.close()
        self._guards.close()


def _session_id(request: ExecuteRequest) -> str | None:
    return request.session.id if request.session is not None else None


def _do_nothing() -> None:
    """A persistent sandbox is not released."""


@asynccontextmanager
async def running(
    machine: Machine, registry: Registry, traits: HostTraits, recorder: Recorder
) -> AsyncIterator[Supervisor]:
    """When the context ends, every execution and sandbox has ended."""
    async with anyio.create_task_group() as tasks:
        supervisor = Supervisor(machine, registry, traits, tasks, recorder)
        async with anyio.create_task_group() as reapers:
            reapers.start_soon(keep_running, supervisor.pool.keep_swept)
            reapers.start_soon(keep_running, supervisor.sandboxes.end_idle)
            try:
                yield supervisor
            finally:
                with anyio.CancelScope(shield=True):
                    await supervisor.stop()
                    await supervisor.background.ended()
                reapers.cancel_scope.cancel()
