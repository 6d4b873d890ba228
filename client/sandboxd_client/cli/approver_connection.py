"""A connection that may decide: `approve`, `top`, `audit`, `dashboard` and what changes sessions.

The approver's token lies in a file that only this user can read and that no sandbox sees.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from sandboxd_client import autostart, handshake, transport
from sandboxd_client.cli.connect import socket_path
from sandboxd_client.cli.parse import Options
from sandboxd_client.handshake import lost_error, unwrap
from sandboxd_client.jsontext import LineBuffer, dumps, loads
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.locations import approver_file

Message = dict[str, Any]
PATIENCE_S = 30.0


class ApproverConnection:
    """Blocking calls; notifications are kept in `notifications` until the caller takes them."""

    def __init__(self, path: str, *, types: list[str] | None = None, after: str | None = None):
        self.path = path
        self._sock = transport.connect(path)
        self._lines = LineBuffer()
        self._next_id = 1
        self._answers: dict[int, Message] = {}
        self.notifications: deque[Message] = deque()
        handshake.initialize(self._sock, "sandboxctl")
        params: Message = {"role": "approver", "token": read_token(path)}
        if types is not None:
            params["types"] = types
        if after is not None:
            params["after"] = after
        self.subscribed = self.call("events/subscribe", params)

    def __enter__(self) -> ApproverConnection:
        return self

    def __exit__(self, *error: object) -> None:
        self._sock.close()

    def fileno(self) -> int:
        return self._sock.fileno()

    def call(self, method: str, params: Message | None = None) -> Message:
        number, self._next_id = self._next_id, self._next_id + 1
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        try:
            self._sock.sendall(dumps(request) + b"\n")
        except OSError as error:
            raise lost_error(error.strerror) from None
        while number not in self._answers:
            if not self.receive(PATIENCE_S):
                raise lost_error("it does not answer")
        result: Message = unwrap(self._answers.pop(number))
        return result

    def is_readable(self, timeout_s: float | None) -> bool:
        return transport.is_readable(self._sock, timeout_s)

    def receive(self, timeout_s: float | None) -> bool:
        """Take in what has come; False if nothing comes in time."""
        if not self.is_readable(timeout_s):
            return False
        data = self._sock.recv(1 << 18)
        if not data:
            raise lost_error()
        for line in self._lines.feed(data):
            message = loads(line)
            if "method" in message:
                self.notifications.append(message)
            elif message.get("id") is not None:
                self._answers[message["id"]] = message
        return True


def read_token(path: str) -> str:
    token = approver_file(path)
    try:
        with open(token, encoding="ascii") as file:
            return file.read().strip()
    except OSError as error:
        raise SandboxdError(
            f"the approver's token cannot be read: {error.strerror}",
            remedy=f"only the daemon's own user can read {token}",
        ) from None


def approver(options: Options, *, types: list[str] | None = None) -> ApproverConnection:
    """The user's own daemon is started if it does not run: grants and the trail outlive it."""
    return ApproverConnection(running_daemon(options), types=types if types is not None else ["-"])


def running_daemon(options: Options) -> str:
    """The socket's path. A daemon that --socket names is not started: it may be a mistake."""
    path = socket_path(options)
    if not options.has("--socket"):
        autostart.open_connection(path, client="sandboxctl").close()
    return path
