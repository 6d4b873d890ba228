"""The backend `none` on Windows: no isolation; a job ends the whole process tree.

A job object alone is no sandbox.
"""

from __future__ import annotations

import os
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
from sandboxd.windows.console import refuse_terminal
from sandboxd.windows.job_limits import bare_limits
from sandboxd.windows.jobs import Job
from sandboxd.windows.process import JobProcess
from sandboxd.windows.program import exec_failed, program_for
from sandboxd.windows.spawn import spawn
from sandboxd_proto.errors import SandboxUnavailable

assert sys.platform == "win32"

_HELD = {"env", "timeout", "max_output_bytes"}
_WATCHED = {"max_memory_bytes", "max_cpu_secs", "max_processes"}


def make(context: BackendContext) -> UnsandboxedWindows:
    return UnsandboxedWindows(context.windows_support, permitted=both_keys(context.config))


class UnsandboxedWindows(Unsandboxed):
    capabilities = Capabilities(isolates=False)

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
        if stdio is None:
            raise refuse_terminal()
        if self._support.port is None:
            raise SandboxUnavailable("the daemon does not serve any more")
        program = program_for(command, self._temporary, os.path.isfile)
        job = Job(bare_limits(command.limits))
        try:
            made = spawn(program, stdio, job)
        except OSError as error:
            job.close()
            raise exec_failed(command.argv[0], error) from None
        process = JobProcess(made, job, self._support.port, keep_background=command.keep_background)
        process.start()
        made.resume()
        return process
