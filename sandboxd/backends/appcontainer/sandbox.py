"""One AppContainer sandbox: its profile, its capabilities, its private temporary folder."""

from __future__ import annotations

import sys

import msgspec

from sandboxd.backends.windows_context import WindowsSupport
from sandboxd.types import Command, Process, Stdio
from sandboxd.windows.app_containers.capabilities import SecurityCapabilities
from sandboxd.windows.app_containers.inspector import LiveProcess
from sandboxd.windows.app_containers.verification import Expected, NotVerifiedError, resume_verified
from sandboxd.windows.job_objects.job_limits import sandbox_limits
from sandboxd.windows.job_objects.jobs import Job
from sandboxd.windows.processes.console import refuse_terminal
from sandboxd.windows.processes.launch import Launched
from sandboxd.windows.processes.process import JobProcess
from sandboxd.windows.processes.spawn import Suspended
from sandboxd.windows.processes.system_launch import launch_command
from sandboxd.windows.structures import PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES
from sandboxd.windows.tokens import current_user
from sandboxd_proto.errors import ExecFailed, SandboxUnavailable

assert sys.platform == "win32"

_NO_CAPABILITIES = 50  # ERROR_NOT_SUPPORTED


class AppIdentity(msgspec.Struct, frozen=True):
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
        if stdio is None and not self._support.terminals:
            raise refuse_terminal()
        made = self._launch(command, stdio)
        expected = Expected(current_user(), self._identity.package, self._identity.capabilities)
        try:
            resume_verified(LiveProcess(made.made, made.job), expected)
        except BaseException as error:
            made.process.close()
            if isinstance(error, NotVerifiedError):
                raise SandboxUnavailable(
                    f"Windows did not sandbox the command, so it was not run: {error}"
                ) from None
            raise
        return made.process

    def _launch(
        self, command: Command, stdio: Stdio | None
    ) -> Launched[Job, Suspended, JobProcess]:
        support = self._support
        limits = sandbox_limits(command.limits, support.build, support.processes)
        held = SecurityCapabilities(self._identity.package, self._identity.capabilities)
        more = [(PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES, held.value)]
        try:
            return launch_command(
                command, stdio, limits, support.port, self._temporary, more=more, sandboxed=True
            )
        except ExecFailed as error:
            if getattr(error.__cause__, "winerror", None) == _NO_CAPABILITIES:
                raise SandboxUnavailable("this Windows takes no AppContainer attribute") from None
            raise
        finally:
            held.close()
