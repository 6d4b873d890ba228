"""The supervisor: takes requests, finds each a sandbox, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from sandboxd.backends.interface import Backend, Enforcement
from sandboxd.backends.registry import Registry
from sandboxd.backends.select import refusal, select
from sandboxd.policy.plan import Plan
from sandboxd.policy.resolve import Machine
from sandboxd.supervisor.background import Background
from sandboxd.supervisor.execution import Execution, Ground
from sandboxd.supervisor.executions import Executions
from sandboxd.supervisor.guard import Guards
from sandboxd.supervisor.judge import Bench
from sandboxd.supervisor.persistent import PersistentSandbox, PersistentSandboxes
from sandboxd.supervisor.pool import Held, WarmPool
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd_proto.errors import (
    InternalError,
    SandboxdError,
    SandboxUnavailable,
    ShuttingDown,
)
from sandboxd_proto.messages.execute import ExecuteResult

log = logging.getLogger(__name__)
END_ALL_S = 10.0


class Supervisor:
    """Made by `running`, which owns every task that it starts."""

    def __init__(
        self, machine: Machine, registry: Registry, bench: Bench, tasks: TaskGroup
    ) -> None:
        self.machine = machine
        self.registry = registry
        self.executions = Executions(bench, machine.config.max_executions)
        self._background = Background(tasks)
        self.pool = WarmPool(machine.config.pool, self._background)
        self.sandboxes = PersistentSandboxes(self._background)
        self._guards = Guards(self._dispose)
        self._stopping = False

    # executing

    def accept(self, request: ExecuteRequest) -> Execution:
        """Register it; from here on its id can be used. Nothing has been started."""
        if self._stopping:
            raise ShuttingDown("the daemon is shutting down", remedy="send the request again later")
        return self.executions.add(request)

    def begin(self, execution: Execution) -> None:
        """Start it at once if there is a sandbox for it; `perform` starts it otherwise."""
        try:
            ground = self._at_hand(execution)
        except Exception:
            return  # `perform` comes to the same
        if ground is not None:
            execution.begin(ground)

    def _at_hand(self, execution: Execution) -> Ground | None:
        plan = execution.request.plan
        if execution.sandbox_id is not None:
            return self._ground_in(self.sandboxes.find(execution.sandbox_id), plan)
        backend = next(select(plan, self.machine.config, self.registry))
        enforcement = backend.enforcement(plan)
        held = self.pool.take_ready(backend, plan.sandbox)
        return None if held is None else self._ground(backend, held, enforcement)

    async def perform(self, execution: Execution) -> ExecuteResult:
        """Run an accepted execution to its end."""
        try:
            result = await self._perform(execution)
        except SandboxdError as error:
            execution.error = error
            raise
        except BaseException:
            execution.error = InternalError("the execution was given up")
            raise
        else:
            execution.result = result
            return result
        finally:
            self.executions.ended(execution)

    def detach(self, execution: Execution) -> None:
        self._background.start(self._perform_alone, execution)

    async def _perform_alone(self, execution: Execution) -> None:
        try:
            await self.perform(execution)
        except SandboxdError:
            pass  # whoever waits for it gets the error
        except Exception:
            log.exception("a detached execution failed")

    async def _perform(self, execution: Execution) -> ExecuteResult:
        ground = execution.ground or await self._find_ground(execution)
        try:
            if execution.ground is None and execution.cancelled:
                return execution.never_ran(ground.backend.name, ground.enforcement)
            return await execution.run(ground)
        finally:
            ground.leave()

    async def _find_ground(self, execution: Execution) -> Ground:
        plan = execution.request.plan
        if execution.sandbox_id is not None:
            return self._ground_in(self.sandboxes.find(execution.sandbox_id), plan)
        backend, held = await self._take(select(plan, self.machine.config, self.registry), plan)
        return self._ground(backend, held, backend.enforcement(plan))

    def _ground(self, backend: Backend, held: Held, enforcement: Enforcement) -> Ground:
        released = False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                # The answer goes first: starting a task takes a while.
                asyncio.get_running_loop().call_soon(self.pool.let_go, held.hold)

        return Ground(
            backend, held.sandbox, enforcement, release, release, guards=self._guards
        )

    def _ground_in(self, place: PersistentSandbox, plan: Plan) -> Ground:
        enforcement = place.backend.enforcement(plan)
        place.running += 1

        def leave() -> None:
            place.running -= 1
            place.last_used = time.monotonic()

        return Ground(
            place.backend, place.sandbox, enforcement, _keep, leave,
            linger=self.sandboxes.linger,
        )  # fmt: skip

    def _dispose(self, work: Callable[[], None]) -> None:
        self._background.start(anyio.to_thread.run_sync, work)

    async def _take(self, able: Iterable[Backend], plan: Plan) -> tuple[Backend, Held]:
        failures: list[SandboxUnavailable] = []
        for backend in able:
            backend.enforcement(plan)  # PolicyNotSupported before anything is opened
            try:
                return backend, await self.pool.take(backend, plan.sandbox)
            except SandboxUnavailable as error:
                failures.append(error)
        raise refusal(failures)

    async def create_sandbox(self, plan: Plan, idle_s: float | None) -> PersistentSandbox:
        if self._stopping:
            raise ShuttingDown("the daemon is shutting down", remedy="send the request again later")
        idle = self.sandboxes.admit(idle_s)
        backend, held = await self._take(select(plan, self.machine.config, self.registry), plan)
        try:
            made = PersistentSandbox(plan, backend, held.sandbox, held.hold, idle)
        except BaseException:
            self.pool.let_go(held.hold)
            raise
        self.sandboxes.add(made)
        return made

    # ending

    def abandon(self, owner: object) -> None:
        """The owner's connection is gone: what it did not detach ends with it."""
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
        await self.sandboxes.close()
        await self.pool.close()
        self._guards.close()


def _keep() -> None:
    """A persistent sandbox stays."""


@asynccontextmanager
async def running(machine: Machine, registry: Registry, bench: Bench) -> AsyncIterator[Supervisor]:
    """On leaving, every execution and every sandbox is gone."""
    async with anyio.create_task_group() as tasks:
        supervisor = Supervisor(machine, registry, bench, tasks)
        async with anyio.create_task_group() as keepers:
            keepers.start_soon(supervisor.pool.keep_filled)
            keepers.start_soon(supervisor.sandboxes.end_idle)
            try:
                yield supervisor
            finally:
                with anyio.CancelScope(shield=True):
                    await supervisor.stop()
                keepers.cancel_scope.cancel()
