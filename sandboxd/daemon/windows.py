"""What the daemon is made of on Windows: a named pipe, jobs, and the AppContainer backend."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial

from sandboxd.backends.interface import BackendContext
from sandboxd.backends.windows_context import WindowsSupport
from sandboxd.config.config import Config
from sandboxd.daemon.platform_parts import PlatformParts
from sandboxd.platform.windows import system
from sandboxd.policy.mounts.mount_plan import Host
from sandboxd.policy.mounts.own_paths import OwnPaths
from sandboxd.rpc.transport.interface import Listener
from sandboxd.rpc.transport.notifier import NoNotifier
from sandboxd.rpc.transport.pipe_listener import listen
from sandboxd.windows.job_objects.jobs import JobPort
from sandboxd_proto import locations
from sandboxd_proto.locations import default_socket

assert sys.platform == "win32"


def listening(path: str | None) -> Listener:
    """ListenError where it cannot listen."""
    return listen(path or default_socket())


def notifier() -> NoNotifier:
    return NoNotifier()


def approver_file(listener: Listener) -> str:
    _folder()
    return locations.approver_file(listener.path)


def collect_soon(caches_root: str) -> None:
    """Private folders go with their sandboxes; journals are recovered by the backend."""


def platform_parts(
    config: Config, host: Host, listener: Listener, held: ExitStack
) -> PlatformParts:
    folder = _folder()
    support = WindowsSupport(
        folder,
        elevated=system.is_privileged(),
        allow_elevated=config.windows.allow_elevated,
        processes=config.windows.active_processes,
        build=sys.getwindowsversion().build,
    )

    def context(config: Config, path: str, own: OwnPaths) -> BackendContext:
        return BackendContext(config, path, windows=support)

    return PlatformParts(
        context, partial(_running, support), hidden=(folder,),
        forwards_folder=os.path.join(folder, "forwards"),
    )  # fmt: skip


@asynccontextmanager
async def _running(support: WindowsSupport) -> AsyncIterator[None]:
    support.port = JobPort()
    try:
        yield
    finally:
        port, support.port = support.port, None
        port.close()


def _folder() -> str:
    folder = system.local_folder(os.environ)
    os.makedirs(folder, exist_ok=True)
    return folder
