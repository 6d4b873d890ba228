"""`sandboxctl logs ID`: what a detached command has printed, and how it ended if it has.

With --follow until its end; the exit code is then the command's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd_client import handshake, transport
from sandboxd_client.cli import outcome
from sandboxd_client.cli.connect import socket_path
from sandboxd_client.cli.ids import connect, execution_id
from sandboxd_client.cli.join_session import join_session
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import say, say_denial
from sandboxd_client.jsontext import LineBuffer, dumps, loads
from sandboxd_client.payload import decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any


def main(options: Options) -> int:
    follow = options.has("--follow")
    with connect(options) as client:
        wanted = execution_id(client, options.operands[0])
    with _joined(options) as sock:
        _print(sock, wanted, follow=follow)
    with _joined(options) as sock:
        # A command that could not be started has an error in place of a result.
        method = "execution/wait" if follow else "execution/status"
        found = handshake.ask(sock, method, {"execution_id": wanted})
    result = found if follow else found.get("result")
    if result is None:
        typing = ", sandboxctl attach lets you type to it" if found.get("stdin_open") else ""
        state = "has not started yet" if found.get("state") == "pending" else "is still running"
        say(f"it {state}; --follow goes on{typing}")
        return 0
    say(outcome.describe_end(result))
    for line in outcome.remarks(result):
        say_denial(line)
    return outcome.exit_code(result) if follow else 0


@contextmanager
def _joined(options: Options) -> Iterator[socket]:
    sock = transport.connect(socket_path(options))
    try:
        join_session(sock, options, None)
        yield sock
    finally:
        sock.close()


def _print(sock: socket, wanted: str, *, follow: bool) -> None:
    """Until its end, or (not `follow`) until what it has printed so far."""
    _send(sock, 1, "execution/attach", wanted)
    if follow:
        _send(sock, 2, "execution/wait", wanted)
    left: dict[str, int] | None = None
    lines = LineBuffer()
    while True:
        data = sock.recv(1 << 18)
        if not data:
            return
        for line in lines.feed(data):
            message = loads(line)
            if message.get("id") == 1:
                answer = handshake.unwrap(message)
                if answer.get("gap"):
                    say("older output is not kept")
                left = dict(answer.get("next_seq") or {})
                if answer.get("state") == "ended":
                    follow = False
            elif message.get("method") == "execution/output":
                _write(message["params"], left or {})
            elif message.get("method") == "execution/exited":
                return
            elif message.get("id") == 2 and "error" in message:
                handshake.unwrap(message)
            if left is not None and not follow and not any(left.values()):
                return


def _send(sock: socket, id: int, method: str, wanted: str) -> None:
    request = {"jsonrpc": "2.0", "id": id, "method": method, "params": {"execution_id": wanted}}
    sock.sendall(dumps(request) + b"\n")


def _write(params: dict[str, Any], left: dict[str, int]) -> None:
    stream = str(params["stream"])
    data = memoryview(decode(params["data"], params.get("encoding", "utf-8")))
    while data:
        data = data[os.write(2 if stream == "stderr" else 1, data) :]
    if params["seq"] + 1 >= left.get(stream, 0):
        left[stream] = 0
