"""`sandboxctl run` on Windows: behave like the command itself, in a sandbox.

One thread reads our stdin, the main thread reads the daemon's messages. Ctrl-C ends the command.
Terminals are not supported there yet.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

from sandboxd_client import payload
from sandboxd_client.autostart import open_connection
from sandboxd_client.cli import approval, outcome
from sandboxd_client.cli.connect import say_once
from sandboxd_client.cli.flags import RUN, SANDBOX_RUN
from sandboxd_client.cli.join_session import join_session
from sandboxd_client.cli.parse import Options, UsageError, no_command_error, parse
from sandboxd_client.cli.prefix import find_sandbox
from sandboxd_client.cli.request import in_sandbox, policy
from sandboxd_client.cli.screen import REFUSED, fail, put, say
from sandboxd_client.handshake import lost_error, unwrap
from sandboxd_client.jsontext import LineBuffer, dumps, loads

assert sys.platform == "win32"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any

    from sandboxd_client.cli.flags import CommandSpec

INTERRUPTED = 130
_NOT_HERE = {
    "--pty": "terminals are not supported",
    "--ask": "decisions on this terminal are not supported",
}
_PIECE = 64 * 1024
RESULT_ID, QUESTION_ID = 1, 2


def main(arguments: list[str], command: CommandSpec = RUN) -> int:
    options = None
    try:
        options = parse(command, arguments)
        if options.help:
            from sandboxd_client.cli.help import page

            print(page(command), end="")
            return 0
        if command is SANDBOX_RUN:
            options.add("--sandbox", options.operands.pop(0))
            if options.operands[:1] == ["--"]:
                del options.operands[0]
        for flag, what in _NOT_HERE.items():
            if options.has(flag):
                raise UsageError(f"{what} on Windows yet", f"leave {flag} out")
        return run(options)
    except Exception as error:
        json = options is not None and options.has("--json")
        return fail(error, json=json, usage_code=REFUSED, options=options)


def run(options: Options) -> int:
    line = options.one("--command")
    if line is not None:
        options.operands[:0] = ["cmd.exe", "/d", "/c", line]
    if not options.operands:
        raise no_command_error(RUN, options)
    if options.has("--detach"):
        from sandboxd_client.cli.detach import detach

        return detach(options, connection)
    if options.has("--name"):
        raise UsageError("--name is for a detached command", "add --detach")
    params = in_sandbox(options) if options.has("--sandbox") else policy(options, os.environ)
    params["argv"] = options.operands
    params["execution_id"] = f"ctl-{os.getpid()}-{os.urandom(6).hex()}"
    if options.has("--json"):
        params["capture"] = True
    else:
        params["stream"] = True
    forwards = has_input() and not options.has("--no-stdin")
    if forwards:
        params["stdin_open"] = True
    sock = connection(options)
    try:
        find_sandbox(sock, params)
        join_session(sock, options, params.get("workspace"))
        result = RunConversation(sock, params["execution_id"]).run(params, forwards)
    finally:
        sock.close()
    return report(result, options)


def connection(options: Options) -> socket:
    return open_connection(
        options.one("--socket") or _default_socket(), client="sandboxctl",
        may_start=not options.has("--no-autostart"), note=lambda text: say_once(options, text),
    )  # fmt: skip


class Conversation:
    """The messages about one execution. Frames of both threads go out whole."""

    def __init__(self, sock: socket, execution_id: str) -> None:
        self._sock = sock
        self._execution_id = execution_id
        self._sending = threading.Lock()
        self._next_id = QUESTION_ID + 1
        self._result: dict[str, Any] | None = None

    def _until_result(self) -> dict[str, Any]:
        lines = LineBuffer()
        while True:
            try:
                data = self._sock.recv(256 * 1024)
                if not data:
                    raise lost_error()
                for line in lines.feed(data):
                    self._take(loads(line))
                if self._is_over:
                    assert self._result is not None
                    return self._result
            except (KeyboardInterrupt, InterruptedError):
                self._interrupted()

    @property
    def _is_over(self) -> bool:
        return self._result is not None

    def _interrupted(self) -> None:
        """Ctrl-C."""
        raise KeyboardInterrupt

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("id") == RESULT_ID and "method" not in message:
            self._result = unwrap(message)
        elif message.get("method") == "execution/output":
            _print(message["params"])

    def send(self, method: str, params: dict[str, Any], number: int | None = None) -> None:
        with self._sending:
            if number is None:
                number, self._next_id = self._next_id, self._next_id + 1
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            self._sock.sendall(dumps(request) + b"\n")

    def _about(self, method: str, **more: Any) -> None:
        self.send(f"execution/{method}", {"execution_id": self._execution_id, **more})

    def forward_input(self) -> None:
        threading.Thread(target=self._forward, daemon=True).start()

    def _forward(self) -> None:
        """The daemon answers each piece when the command's pipe has taken it, in order."""
        with suppress(OSError):
            while data := os.read(0, _PIECE):
                self._about("write", base64=payload.base64(data))
            self._about("close_stdin")


class RunConversation(Conversation):
    """One `execute`. The first Ctrl-C ends the command, the second one this program."""

    _cancelled = False
    _pending: dict[str, Any] | None = None

    def run(self, params: dict[str, Any], forwards: bool) -> dict[str, Any]:
        self.send("execute", params, RESULT_ID)
        if forwards:
            self.forward_input()
        return self._until_result()

    def _take(self, message: dict[str, Any]) -> None:
        super()._take(message)
        if message.get("method") == "execution/pending":
            self._pending = message["params"]
            wanted = {"approval": self._pending["approval"], "timeout_secs": 0}
            self.send("approval/wait", wanted, QUESTION_ID)
        elif message.get("id") == QUESTION_ID and "result" in message and self._pending is not None:
            approval.tell(message["result"], self._pending)

    def _interrupted(self) -> None:
        if self._cancelled:
            raise KeyboardInterrupt
        self._cancelled = True
        self._about("cancel")


def _print(params: dict[str, Any]) -> None:
    rest = memoryview(payload.decode(params["data"], params.get("encoding", "utf-8")))
    fd = 2 if params["stream"] == "stderr" else 1
    while rest:
        rest = rest[os.write(fd, rest) :]


def has_input() -> bool:
    """Whether stdin is a pipe or a file; a console is not read, so that Ctrl-C stays ours."""
    try:
        return not os.isatty(0) and os.fstat(0).st_mode & 0o170000 in (0o010000, 0o100000)
    except OSError:
        return False


def report(result: dict[str, Any], options: Options) -> int:
    if options.has("--json"):
        from sandboxd_client.jsontext import printable

        put(printable(dumps(result)) + b"\n")
    elif not options.has("--quiet"):
        given = ",".join(options.all("--net")).split(",")
        for line in outcome.remarks(result, given=given, typed=options.typed_in_sandbox):
            say(line)
    if result.get("outcome") == "cancelled":
        return INTERRUPTED
    return outcome.exit_code(result)


def _default_socket() -> str:
    from sandboxd_proto.locations import default_socket

    return default_socket()
