"""Backends that lie, to test the conformance suite with: a suite that they pass is worth nothing.

A faulty backend takes the place of a real one in a daemon of its own. It says what that one would
say and does something else. `SANDBOXD_TEST_LIAR=idle:bubblewrap` makes the suite test one.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sandboxd.backends.interface import Backend
from sandboxd.policy.plan import Limits, Plan, SandboxSpec
from sandboxd.types import Command, ExitReport, Process, Sandbox, Stdio

VARIABLE = "SANDBOXD_TEST_LIAR"


def impersonated() -> str | None:
    """Which backend a faulty one stands for in this run of the suite, if any."""
    return os.environ.get(VARIABLE, "").partition(":")[2] or None


def faulty_options(name: str) -> dict[str, Any]:
    """For `running_daemon`: a daemon in which the backend `name` is the faulty one."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    env = {"SANDBOXD_BACKEND": name, VARIABLE: os.environ[VARIABLE], "PYTHONPATH": path,
           "TEST_SECRET": "of the daemon"}  # fmt: skip
    return {"module": "support.faulty_daemon", "env": env}


class FaultyBackend:
    """Says what `honest` says and opens what `instead` opens."""

    def __init__(self, honest: Backend, instead: Backend) -> None:
        self.name = honest.name
        self.capabilities = honest.capabilities
        self._honest = honest
        self._instead = instead
        self.probe = honest.probe
        self.command_line = honest.command_line

    def enforcement(self, plan: Plan) -> dict[str, Any]:
        return dict(self._honest.enforcement(plan))

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._opened(spec)

    @asynccontextmanager
    async def _opened(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        async with self._instead.open(spec) as sandbox:
            yield self.changed(sandbox)

    def changed(self, sandbox: Sandbox) -> Sandbox:
        return sandbox


class Spawning:
    """A sandbox with another `spawn`."""

    def __init__(self, inner: Sandbox, spawn: Callable[..., Any]) -> None:
        self._inner = inner
        self.spawn = spawn

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        """Only by the other `spawn`."""
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Idle(FaultyBackend):
    """Enforces nothing: no isolation, no limits, no filter, and the daemon's own environment."""

    def changed(self, sandbox: Sandbox) -> Sandbox:
        async def spawn(command: Command, stdio: Stdio | None) -> Process:
            env = (*command.env, *os.environ.items())
            careless = replace(command, limits=Limits(), syscall_policy="inherit", env=env)
            return await sandbox.spawn(careless, stdio)

        return Spawning(sandbox, spawn)


class Guessing(FaultyBackend):
    """Isolates, and reports like a shell: a signal is 128+n, and a limit is just an exit."""

    def __init__(self, honest: Backend, instead: Backend) -> None:
        super().__init__(honest, honest)

    def changed(self, sandbox: Sandbox) -> Sandbox:
        async def spawn(command: Command, stdio: Stdio | None) -> Process:
            return _Guessed(await sandbox.spawn(command, stdio))

        return Spawning(sandbox, spawn)


class _Guessed:
    def __init__(self, inner: Process) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def wait(self, **options: bool) -> ExitReport:
        report = await self._inner.wait(**options)
        code = report.exit_code if report.signal is None else 128 + report.signal
        return replace(report, exit_code=code, signal=None, limit=None)


class Silent(FaultyBackend):
    """Isolates, and leaves out how firmly."""

    def __init__(self, honest: Backend, instead: Backend) -> None:
        super().__init__(honest, honest)

    def enforcement(self, plan: Plan) -> dict[str, Any]:
        super().enforcement(plan)
        return {}


class Honest(FaultyBackend):
    """The control: it does what it says."""

    def __init__(self, honest: Backend, instead: Backend) -> None:
        super().__init__(honest, honest)


FAULTY_BACKENDS: dict[str, type[FaultyBackend]] = {
    "honest": Honest,
    "idle": Idle,
    "guessing": Guessing,
    "silent": Silent,
}
