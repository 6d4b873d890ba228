"""One blocking request and its answer on a fresh connection, without msgspec.

`sandboxctl` uses it before anything else is in flight: for the daemon's version, state and
shutdown.
"""

from __future__ import annotations

from sandboxd_client import __version__
from sandboxd_client.jsontext import LineBuffer, dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any


def ask(sock: socket, method: str, params: dict[str, Any] | None = None) -> Any:
    """The result, or the error that the daemon answered. Nothing else may be in flight."""
    send(sock, method, params)
    return answer(sock)


def send(sock: socket, method: str, params: dict[str, Any] | None = None) -> None:
    request = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params or {}}
    try:
        sock.sendall(dumps(request) + b"\n")
    except OSError as error:
        raise lost_error(error.strerror) from None


def answer(sock: socket) -> Any:
    """What `ask` returns, for a request that was sent."""
    lines = LineBuffer()
    try:
        while True:
            data = sock.recv(65536)
            if not data:
                raise lost_error()
            for line in lines.feed(data):
                message = loads(line)
                if not isinstance(message, dict) or "method" not in message:
                    return unwrap(message)
    except OSError as error:
        raise lost_error(error.strerror) from None
    except (ValueError, RecursionError) as error:
        raise lost_error(f"its answer cannot be read: {error}") from None


def initialize(sock: socket, name: str) -> dict[str, Any]:
    send_initialize(sock, name)
    return initialized(sock)


def send_initialize(sock: socket, name: str) -> None:
    send(sock, "initialize", {"client": {"name": name, "version": __version__}})


def initialized(sock: socket) -> dict[str, Any]:
    result = answer(sock)
    return result if isinstance(result, dict) else {}


def unwrap(message: Any) -> Any:
    """The `result` of an answer; its `error` is raised as the class of its kind."""
    if not isinstance(message, dict):
        raise lost_error("its answer is not an object")
    error = message.get("error")
    if error is None:
        return message.get("result")
    from sandboxd_proto.errors import from_wire

    raise from_wire(error.get("code", -32603), error.get("message", ""), error.get("data"))


def lost_error(cause: str | None = None) -> Exception:
    from sandboxd_client.errors import ConnectionLost

    facts = {"cause": cause} if cause else {}
    return ConnectionLost(
        "the daemon closed the connection",
        remedy="see the daemon's log, then try again",
        **facts,
    )
