"""Thin clients for sandboxd: `AsyncClient` (anyio), `Client` (blocking), and `sandboxctl`.

Importing this package imports nothing else: `sandboxctl run` passes through here, and msgspec and
anyio together cost several times Python's own start. Names are loaded when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd_client.async_client import AsyncClient
    from sandboxd_client.async_execution import AsyncExecution
    from sandboxd_client.client import Client
    from sandboxd_client.errors import ConnectionLost, DaemonNotRunning, ServerNotTrusted, Unread
    from sandboxd_client.execution import Execution
    from sandboxd_client.payload import bytes_of
    from sandboxd_proto.errors import SandboxdError
    from sandboxd_proto.manifest import Manifest, Network
    from sandboxd_proto.messages.execute import ExecuteResult, PtySize
    from sandboxd_proto.messages.notifications import DenialSeen, Exited, Output, Started

__version__ = "0.1.0"
__all__ = [
    "AsyncClient", "AsyncExecution", "Client", "ConnectionLost", "DaemonNotRunning", "DenialSeen",
    "ExecuteResult", "Execution", "Exited", "Manifest", "Network", "Output", "PtySize",
    "SandboxdError", "ServerNotTrusted", "Started", "Unread", "__version__", "bytes_of",
]  # fmt: skip

_HOMES = {
    "sandboxd_client.async_client": ("AsyncClient",),
    "sandboxd_client.async_execution": ("AsyncExecution",),
    "sandboxd_client.client": ("Client",),
    "sandboxd_client.errors": ("ConnectionLost", "DaemonNotRunning", "ServerNotTrusted", "Unread"),
    "sandboxd_client.execution": ("Execution",),
    "sandboxd_client.payload": ("bytes_of",),
    "sandboxd_proto.errors": ("SandboxdError",),
    "sandboxd_proto.manifest": ("Manifest", "Network"),
    "sandboxd_proto.messages.execute": ("ExecuteResult", "PtySize"),
    "sandboxd_proto.messages.notifications": ("DenialSeen", "Exited", "Output", "Started"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
