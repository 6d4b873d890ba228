"""The daemon as a service of this user: systemd, macOS's launchd, or a logon task of Windows.

What each of them needs is described here as data; `apply` writes files and runs commands.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from sandboxd_proto.errors import SandboxdError


@dataclass(frozen=True)
class ServiceFile:
    path: str
    content: bytes


@dataclass(frozen=True)
class ServicePlan:
    """`start` runs after the files were written, `stop` before they are removed.

    `reload` runs after any of the files came or went. `stop` may fail: it may not run. `is_active`
    ends with 0 when the service is set up and its manager knows it. `reaches` ends with 0 when the
    manager can be reached; `unreachable` says what to do where it cannot.
    """

    manager: str
    files: tuple[ServiceFile, ...]
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    is_active: tuple[str, ...]
    reload: tuple[tuple[str, ...], ...] = ()
    note: str = ""
    reaches: tuple[str, ...] = ()
    unreachable: str = ""


def plan_for(program: list[str], environ: dict[str, str]) -> ServicePlan:
    """For this platform and user."""
    if sys.platform == "linux":
        from sandboxd_client.service import systemd

        return systemd.plan(program, environ)
    if sys.platform == "darwin":
        from sandboxd_client.service import launchd

        return launchd.plan(program, environ)
    if sys.platform == "win32":
        from sandboxd_client.service import logon_task

        return logon_task.plan(program, environ)
    raise SandboxdError(f"there is no service manager for {sys.platform}")
