"""The supervisor: takes requests, finds each a sandbox, and leaves nothing behind."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from sandboxd.backends.interface import Backend
from sandboxd.backends.registry import Registry
from sandboxd.backends.select import refusal, select
from sandboxd.policy.plan import Plan
from sandboxd.policy.resolve import Machine
from sandboxd.sandbox import Sandbox
from sandboxd.supervisor.execution import Execution
from sandboxd.supervisor.executions import Executions
from sandboxd.supervisor.judge import Bench
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


@dataclass(frozen=True, slots=True)
class Taken:
    """A sandbox for one execution, and the stack that lets go of it."""

    backend: Backend
    sandbox: Sandbox
    hold: AsyncExitStack


class Supervisor:
    """Made by `running`, which owns every task that it starts."""

    def __init__(
        self, machine: Machine, registry: Registry, bench: Bench, tasks: TaskGroup
    ) -> None:
        self.machine = machine
        self.registry = registry
        self.executions = Executions(bench, machine.config.max_executions)
        self._tasks = tasks
        self._stopping = False

    # executing

    def accept(self, request: ExecuteRequest) -> Execution:
        """Register it; from here on its id can be used. Nothing has been started."""
        if self._stopping:
            raise ShuttingDown("the daemon is shutting down", remedy="send the request again later")
        return self.executions.add(request)

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
        self._tasks.start_soon(self._perform_alone, execution)

    async def _perform_alone(self, execution: Execution) -> None:
        try:
            await self.perform(execution)
        except SandboxdError:
            pass  # whoever waits for it gets the error
        except Exception:
            log.exception("a detached execution failed")

    async def _perform(self, execution: Execution) -> ExecuteResult:
        plan = execution.request.plan
        able = select(plan, self.machine.config, self.registry)
        taken = await self._take(able, plan)
        enforcement = taken.backend.enforcement(plan)
        try:
            if execution.cancelled:
                return execution.never_ran(taken.backend.name, enforcement)

            async def release() -> None:
                self._tasks.start_soon(_let_go, taken.hold.pop_all())

            return await execution.run(taken.backend, taken.sandbox, enforcement, release)
        finally:
            with anyio.CancelScope(shield=True):
                await taken.hold.aclose()

    async def _take(self, able: list[Backend], plan: Plan) -> Taken:
        failures: list[SandboxUnavailable] = []
        for backend in able:
            hold = AsyncExitStack()
            try:
                sandbox = await hold.enter_async_context(backend.open(plan.sandbox))
                return Taken(backend, sandbox, hold)
            except SandboxUnavailable as error:
                failures.append(error)
        raise refusal(failures)

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
                await waiting[0].done.wait()


async def _let_go(hold: AsyncExitStack) -> None:
    await hold.aclose()


@asynccontextmanager
async def running(machine: Machine, registry: Registry, bench: Bench) -> AsyncIterator[Supervisor]:
    """On leaving, every execution and every sandbox is gone."""
    async with anyio.create_task_group() as tasks:
        supervisor = Supervisor(machine, registry, bench, tasks)
        try:
            yield supervisor
        finally:
            with anyio.CancelScope(shield=True):
                await supervisor.stop()
