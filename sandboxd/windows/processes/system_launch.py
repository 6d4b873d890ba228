"""`launch` with the calls of this system."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sandboxd.types import Command, Stdio
from sandboxd.windows.job_objects.job_limits import JobLimits
from sandboxd.windows.job_objects.jobs import Job, JobPort
from sandboxd.windows.processes.console import ConsoleTerminal
from sandboxd.windows.processes.console_api import SystemConsoles
from sandboxd.windows.processes.launch import Launched, launch
from sandboxd.windows.processes.process import JobProcess
from sandboxd.windows.processes.program import exec_failed, program_for
from sandboxd.windows.processes.spawn import SpawnProgram, Suspended, spawn, spawn_in_console
from sandboxd_proto.errors import SandboxUnavailable

assert sys.platform == "win32"


@dataclass(slots=True)
class SystemLaunch:
    """`more`: further attributes of the process."""

    command: Command
    program: SpawnProgram
    stdio: Stdio | None
    limits: JobLimits
    port: JobPort
    more: Sequence[tuple[int, Any]] = ()
    sandboxed: bool = False
    consoles: SystemConsoles = field(default_factory=SystemConsoles)

    def job(self) -> Job:
        return Job(self.limits)

    def spawn(self, job: Job, console: int | None) -> Suspended:
        if console is not None:
            return spawn_in_console(self.program, console, job, self.more)
        assert self.stdio is not None
        return spawn(self.program, self.stdio, job, self.more)

    def process(self, job: Job, made: Suspended, terminal: ConsoleTerminal | None) -> JobProcess:
        return JobProcess(
            made, job, self.port, terminal=terminal, keep_background=self.command.keep_background,
            sandboxed=self.sandboxed,
        )  # fmt: skip


def launch_command(
    command: Command, stdio: Stdio | None, limits: JobLimits, port: JobPort | None,
    temporary: str, *, more: Sequence[tuple[int, Any]] = (), sandboxed: bool = False,
) -> Launched[Job, Suspended, JobProcess]:  # fmt: skip
    """Suspended, and watched. ExecFailed where it cannot be made; `stdio` None: in a terminal."""
    if port is None:
        raise SandboxUnavailable("the daemon does not serve any more")
    program = program_for(command, temporary, os.path.isfile)
    calls = SystemLaunch(command, program, stdio, limits, port, more, sandboxed)
    try:
        return launch(calls, command.pty if stdio is None else None)
    except OSError as error:
        raise exec_failed(command.argv[0], error) from error
