"""One AppContainer sandbox: its profile, its capabilities, its private temporary folder."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from sandboxd.backends.windows_context import WindowsSupport
from sandboxd.types import Command, Process, Stdio
from sandboxd.windows.capabilities import SecurityCapabilities
from sandboxd.windows.console import refuse_terminal
from sandboxd.windows.inspector import LiveProcess
from sandboxd.windows.job_limits import sandbox_limits
from sandboxd.windows.jobs import Job
from sandboxd.windows.process import JobProcess
from sandboxd.windows.program import exec_failed, program_for
from sandboxd.windows.spawn import SpawnProgram, Suspended, spawn
from sandboxd.windows.structures import PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES
from sandboxd.windows.tokens import current_user
from sandboxd.windows.verification import Expected, NotVerifiedError, resume_verified
from sandboxd_proto.errors import SandboxUnavailable

assert sys.platform == "win32"

_NO_CAPABILITIES = 50  # ERROR_NOT_SUPPORTED


@dataclass(frozen=True, slots=True)
class AppIdentity:
    """What a command in the sandbox is to Windows."""

    package: str
    capabilities: frozenset[str]


class AppContainerSandbox:
    alive = True

    def __init__(self, support: WindowsSupport, identity: AppIdentity, temporary: str) -> None:
        self._support = support
        self._identity = identity
        self._temporary = temporary

    def verify(self) -> bool:
        return True

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        return None

    async def spawn(self, command: Command, stdio: Stdio | None) -> Process:
        """The thread runs only when every property was read back."""
        if stdio is None:
            raise refuse_terminal()
        if self._support.port is None:
            raise SandboxUnavailable("the daemon does not serve any more")
        program = program_for(command, self._temporary, os.path.isfile)
        job = Job(sandbox_limits(command.limits, self._support.build, self._support.processes))
        try:
            made = self._create(command, program, stdio, job)
            process = JobProcess(
                made, job, self._support.port, keep_background=command.keep_background,
                sandboxed=True,
            )  # fmt: skip
            process.start()
        except BaseException:
            job.close()
            raise
        expected = Expected(current_user(), self._identity.package, self._identity.capabilities)
        try:
            resume_verified(LiveProcess(made, job), expected)
        except BaseException as error:
            process.close()
            if isinstance(error, NotVerifiedError):
                raise SandboxUnavailable(
                    f"Windows did not sandbox the command, so it was not run: {error}"
                ) from None
            raise
        return process

    def _create(self, command: Command, program: SpawnProgram, stdio: Stdio, job: Job) -> Suspended:
        held = SecurityCapabilities(self._identity.package, self._identity.capabilities)
        try:
            more = [(PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES, held.value)]
            return spawn(program, stdio, job, more)
        except OSError as error:
            if error.winerror == _NO_CAPABILITIES:
                raise SandboxUnavailable("this Windows takes no AppContainer attribute") from None
            raise exec_failed(command.argv[0], error) from None
        finally:
            held.close()
