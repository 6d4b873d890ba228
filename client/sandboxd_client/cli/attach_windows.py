"""`sandboxctl attach ID` on Windows: what a detached command prints. Ctrl-C leaves it running."""

from __future__ import annotations

import sys
from typing import Any

from sandboxd_client import handshake, transport
from sandboxd_client.cli import outcome
from sandboxd_client.cli.connect import socket_path
from sandboxd_client.cli.ids import connect, execution_id
from sandboxd_client.cli.join_session import join_session
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.run_windows import (
    INTERRUPTED,
    RESULT_ID,
    Conversation,
    has_input,
    report,
)
from sandboxd_client.cli.screen import say

assert sys.platform == "win32"


class AttachConversation(Conversation):
    """The result may come before the last output."""

    _exited = False

    def run(self, takes_input: bool) -> dict[str, Any]:
        self.send("execution/attach", {"execution_id": self._execution_id, "stdin": takes_input})
        self.send("execution/wait", {"execution_id": self._execution_id}, RESULT_ID)
        if takes_input:
            self.forward_input()
        return self._until_result()

    @property
    def _is_over(self) -> bool:
        return self._exited and self._result is not None

    def _take(self, message: dict[str, Any]) -> None:
        super()._take(message)
        if message.get("method") in ("execution/started", "execution/exited"):
            self._exited = message["method"] == "execution/exited"


def main(options: Options) -> int:
    with connect(options) as client:
        wanted = execution_id(client, options.operands[0])
    sock = transport.connect(socket_path(options))
    try:
        handshake.initialize(sock, "sandboxctl")
        join_session(sock, options, None)
        state = handshake.ask(sock, "execution/status", {"execution_id": wanted})
        takes_input = bool(state.get("stdin_open")) and has_input()
        ended = state.get("state") == "ended"
        say(outcome.sight(ended=ended, raw=False, takes_input=takes_input))
        try:
            result = AttachConversation(sock, wanted).run(takes_input)
        except KeyboardInterrupt:
            say(f"it goes on; sandboxctl attach {quote(wanted)} comes back to it")
            return INTERRUPTED
    finally:
        sock.close()
    if ended:
        say(outcome.describe_end(result))
    return report(result, options)
