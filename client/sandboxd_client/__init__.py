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

__version__ = "0.1.0"
__all__ = [
    "AsyncClient", "AsyncExecution", "Client", "ConnectionLost", "DaemonNotRunning", "Execution",
    "ServerNotTrusted", "Unread", "__version__", "bytes_of",
]  # fmt: skip

_HOME_OF = {
    "AsyncClient": "async_client",
    "AsyncExecution": "async_execution",
    "Client": "client",
    "ConnectionLost": "errors",
    "DaemonNotRunning": "errors",
    "Execution": "execution",
    "ServerNotTrusted": "errors",
    "Unread": "errors",
    "bytes_of": "payload",
}


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{module}"), name)
