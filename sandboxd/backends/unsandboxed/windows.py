"""The backend `none` on Windows: no isolation; a job ends the whole process tree.

A job object alone is no sandbox.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio

from sandboxd.backends.interface import (
    BackendContext,
    Capabilities,
    Enforcement,
    Probe,
    Unavailable,
)
from sandboxd.backends.unsandboxed.base import Unsandboxed
from sandboxd.backends.unsandboxed_keys import both_keys
from sandboxd.backends.windows_context import ELEVATED, WindowsSupport
from sandboxd.policy.plan import Plan, SandboxSpec
from sandboxd.types import Command, Process, Sandbox, Stdio
from sandboxd.windows.job_objects.job_limits import bare_limits
from sandboxd.windows.processes import console
from sandboxd.windows.processes.console import refuse_terminal
from sandboxd.windows.processes.system_launch import launch_command

assert sys.platform == "win32"

_HELD = {"env", "timeout", "max_output_bytes"}
_WATCHED = {"max_memory_bytes", "max_cpu_secs", "max_processes"}


def make(context: BackendContext) -> UnsandboxedWindows:
    return UnsandboxedWindows(context.windows_support, permitted=both_keys(context.config))


class UnsandboxedWindows(Unsandboxed):
    capabilities = Capabilities(
        isolates=False, terminals=console.VERIFIED, terminal_refusal=console.REFUSAL
    )

    def __init__(self, support: WindowsSupport, *, permitted: bool) -> None:
        super().__init__(permitted=permitted)
        self._support = support

    async def probe(self) -> Probe:
        return Unavailable(*ELEVATED) if self._support.refuses else await super().probe()

    def enforcement(self, plan: Plan) -> Enforcement:
        return {
            field: "enforced" if field in _HELD else "best_effort" if field in _WATCHED else "none"
            for field in sorted(plan.asked)
        }

    def command_line(self, plan: Plan) -> list[str]:
        return ["CreateProcessW"]

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        self._support.check_elevation()
        self._warn()
        folder = tempfile.mkdtemp(prefix="none-", dir=self._support.folder)
        try:
            yield JobsOnly(self._support, folder)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


class JobsOnly:
    """Commands in jobs of their own, and nothing else."""

    alive = True

    def __init__(self, support: WindowsSupport, temporary: str) -> None:
        self._support = support
        self._temporary = temporary

    def verify(self) -> bool:
        return True

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        return None

    async def spawn(self, command: Command, stdio: Stdio | None) -> Process:
        if stdio is None and not self._support.terminals:
            raise refuse_terminal()
        limits = bare_limits(command.limits)
        made = launch_command(command, stdio, limits, self._support.port, self._temporary)
        try:
            made.made.resume()
        except OSError:
            made.process.close()
            raise
        return made.process
