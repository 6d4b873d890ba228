"""Thin clients for sandboxd: `AsyncClient` (anyio), `Client` (blocking), and `sandboxctl`.

Importing this package imports neither msgspec nor anyio, which together cost several times
Python's own start: `sandboxctl run` imports it. Names are loaded when they are first used.
"""

from __future__ import annotations

from sandboxd_proto import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd_client.async_box import AsyncBox
    from sandboxd_client.async_client import AsyncClient
    from sandboxd_client.async_execution import AsyncExecution
    from sandboxd_client.box import Box
    from sandboxd_client.client import Client
    from sandboxd_client.conversation import Notice
    from sandboxd_client.errors import (
        CommandTimeout,
        ConnectionLost,
        DaemonNotRunning,
        ServerNotTrusted,
        Unread,
    )
    from sandboxd_client.execution import Execution
    from sandboxd_client.local_tree import UnsafeLink
    from sandboxd_client.payload import bytes_of
    from sandboxd_proto.errors import SandboxdError
    from sandboxd_proto.manifest import Manifest, Network
    from sandboxd_proto.messages.execute import ExecuteResult, PtySize
    from sandboxd_proto.messages.notifications import DenialSeen, Exited, Output, Progress, Started

__all__ = [
    "AsyncBox", "AsyncClient", "AsyncExecution", "Box", "Client", "CommandTimeout",
    "ConnectionLost", "DaemonNotRunning", "DenialSeen",
    "ExecuteResult", "Execution", "Exited", "Manifest", "Network", "Notice", "Output",
    "Progress", "PtySize",
    "SandboxdError", "ServerNotTrusted", "Started", "Unread", "UnsafeLink",
    "__version__", "bytes_of",
]  # fmt: skip

_HOMES = {
    "sandboxd_client.async_client": ("AsyncClient",),
    "sandboxd_client.async_execution": ("AsyncExecution",),
    "sandboxd_client.async_box": ("AsyncBox",),
    "sandboxd_client.box": ("Box",),
    "sandboxd_client.client": ("Client",),
    "sandboxd_client.conversation": ("Notice",),
    "sandboxd_client.errors": (
        "CommandTimeout",
        "ConnectionLost",
        "DaemonNotRunning",
        "ServerNotTrusted",
        "Unread",
    ),
    "sandboxd_client.execution": ("Execution",),
    "sandboxd_client.local_tree": ("UnsafeLink",),
    "sandboxd_client.payload": ("bytes_of",),
    "sandboxd_proto.errors": ("SandboxdError",),
    "sandboxd_proto.manifest": ("Manifest", "Network"),
    "sandboxd_proto.messages.execute": ("ExecuteResult", "PtySize"),
    "sandboxd_proto.messages.notifications": (
        "DenialSeen",
        "Exited",
        "Output",
        "Progress",
        "Started",
    ),
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
