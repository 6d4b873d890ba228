"""`sandboxctl attach ID`: a detached command in this terminal. Leaving it does not end it."""

from __future__ import annotations

import os
import sys

assert sys.platform != "win32"

from sandboxd_client import handshake, transport  # noqa: E402 - after the platform is known
from sandboxd_client.caller import Outgoing  # noqa: E402
from sandboxd_client.cli import outcome, signals  # noqa: E402
from sandboxd_client.cli.connect import socket_path  # noqa: E402
from sandboxd_client.cli.execute import RESULT_ID, Left  # noqa: E402
from sandboxd_client.cli.finish_run import report  # noqa: E402
from sandboxd_client.cli.ids import connect, execution_id  # noqa: E402
from sandboxd_client.cli.input import Input  # noqa: E402
from sandboxd_client.cli.join_session import join_session  # noqa: E402
from sandboxd_client.cli.output import TerminalOutput  # noqa: E402
from sandboxd_client.cli.parse import Options  # noqa: E402
from sandboxd_client.cli.plain_text import quote  # noqa: E402
from sandboxd_client.cli.raw_mode import RawMode  # noqa: E402
from sandboxd_client.cli.relay import Relay  # noqa: E402
from sandboxd_client.cli.screen import say  # noqa: E402
from sandboxd_client.cli.streams import has_input  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LEAVE = b"\x1d"  # Ctrl-]


class AttachRelay(Relay):
    """Ctrl-C (with a terminal of its own: Ctrl-]) leaves; the command goes on."""

    def run(self, params: dict[str, Any]) -> dict[str, Any]:
        self._started = True
        self._send("execution/attach", params)
        self._send("execution/wait", {"execution_id": self._execution_id}, RESULT_ID)
        with signals.Signals() as arrived:
            return self.until_answer(arrived)

    _exited = False
    _result: dict[str, Any] | None = None

    def _message(self, message: dict[str, Any]) -> None:
        """The result may come before the last output; an error in its place ends it at once."""
        method = message.get("method")
        if method is None and message.get("id") == RESULT_ID and "result" in message:
            self._result = message
        else:
            super()._message(message)
        if method in ("execution/started", "execution/exited"):
            self._exited = method == "execution/exited"
        if self._exited and self._result is not None:
            self._answer = self._result

    def _signalled(self, number: int) -> None:
        if number in (signals.INT, signals.TERM, signals.HUP):
            if number == signals.INT:
                signals.user_sent(number, typed=False)
            raise Left(128 + number)
        super()._signalled(number)

    def _typed(self, data: bytes) -> None:
        if _LEAVE in data:
            raise Left(0)


def main(options: Options) -> int:
    with connect(options) as client:
        wanted = execution_id(client, options.operands[0])
    sock = transport.connect(socket_path(options))
    try:
        handshake.initialize(sock, "sandboxctl")
        join_session(sock, options, None)
        state = handshake.ask(sock, "execution/status", {"execution_id": wanted})
        pty, takes_input = bool(state.get("pty")), bool(state.get("stdin_open"))
        raw = pty and os.isatty(0)
        ended = state.get("state") == "ended"
        say(outcome.sight(ended=ended, raw=raw, takes_input=takes_input))
        relay = AttachRelay(
            Outgoing(sock), wanted, output=TerminalOutput(), pty=pty, streams=True,
            input=Input(raw=raw) if takes_input and has_input(0) else None,
            raw=RawMode(0) if raw else None,
        )  # fmt: skip
        try:
            result = relay.run({"execution_id": wanted, "stdin": takes_input})
        except Left as left:
            say(f"it goes on; sandboxctl attach {quote(wanted)} comes back to it")
            return left.ended()
    finally:
        sock.close()
    if ended:
        say(outcome.describe_end(result))
    return report(result, options)
