"""One blocking request and its answer on a fresh connection, without msgspec.

`sandboxctl` uses it before anything else is in flight: for the daemon's version, state and
shutdown.
"""

from __future__ import annotations

from sandboxd_client import __version__
from sandboxd_client.jsontext import dumps, loads
from sandboxd_client.lines import LineBuffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any


def ask(sock: socket, method: str, params: dict[str, Any] | None = None) -> Any:
    """The result, or the error that the daemon answered. Nothing else may be in flight."""
    request = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params or {}}
    lines = LineBuffer()
    try:
        sock.sendall(dumps(request) + b"\n")
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
    answer = ask(sock, "initialize", {"client": {"name": name, "version": __version__}})
    return answer if isinstance(answer, dict) else {}


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
