"""Connect one running command to our own descriptors: a single poll() loop without threads.

Its events are: a message of the daemon, room in stdout, a piece of stdin, a signal. The loop ends
when the daemon's answer is written, or with a reason to leave.
"""

from __future__ import annotations

import select
import sys
import time

assert sys.platform != "win32"

from sandboxd_client import descriptors  # noqa: E402 - after the platform is known
from sandboxd_client.cli import signals, terminal  # noqa: E402
from sandboxd_client.cli.interrupts import Interrupts  # noqa: E402
from sandboxd_client.handshake import lost_error, unwrap  # noqa: E402
from sandboxd_client.jsontext import dumps, loads  # noqa: E402
from sandboxd_client.lines import LineBuffer  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any

    from sandboxd_client.cli.input import Input
    from sandboxd_client.cli.live import LiveDenials
    from sandboxd_client.cli.output import TerminalOutput
    from sandboxd_client.cli.raw_mode import RawMode
    from sandboxd_client.cli.streams import Streams

READ_BYTES = 64 * 1024  # a larger buffer is mapped and unmapped for each read
UNWRITTEN_LIMIT = 1024 * 1024
# After a cancel the answer comes when the whole tree is dead; then closing the socket must do.
CANCEL_WAIT_S = 10.0
_IN, _OUT = select.POLLIN, select.POLLOUT
_BAD = select.POLLHUP | select.POLLERR | select.POLLNVAL
RESULT_ID, _WRITE_ID, _QUESTION_ID = 1, 2, 3
_SIGPIPE = 13


class Left(Exception):
    """sandboxctl ends before the command's end was reported; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


class Relay:
    def __init__(
        self, sock: socket, execution_id: str, *, output: TerminalOutput, input: Input | None,
        raw: RawMode | None, pty: bool, streams: bool, own: Streams | None = None,
        keys_kill: bool = True, live: LiveDenials | None = None, ask: bool = False,
    ) -> None:  # fmt: skip
        """`streams`: the daemon tells events. `own`: descriptors of ours that go with the request.
        `keys_kill`: Ctrl-C twice kills a program in a terminal that does not take it.
        `live`: where denials are told while the command runs. `ask`: an approval that the command
        waits for is decided on this terminal."""
        sock.setblocking(False)
        self._sock = sock
        self._execution_id = execution_id
        self._output = output
        self._input = input
        self._raw = raw
        self._pty = pty
        self._size = terminal.size() if pty else terminal.DEFAULT_SIZE
        self._interrupts = Interrupts()
        self._own = own
        self._unsent = own.descriptors if own is not None else []
        self._keys_kill = keys_kill
        self._live = live
        self._ask = ask
        self._lines = LineBuffer()
        self._outgoing = bytearray()
        self._next_id = _QUESTION_ID + 1
        self._answer: dict[str, Any] | None = None
        self._started = not streams
        self._pending_notice: dict[str, Any] = {}
        self._cancelled: int | None = None  # the exit code that the reason for it stands for
        self._deadline: float | None = None

    def run(self, params: dict[str, Any]) -> dict[str, Any]:
        """The result of `execute`. Raises the daemon's error, ConnectionLost or Left."""
        self._send("execute", params, RESULT_ID)
        return self._until_answer()

    def _until_answer(self) -> dict[str, Any]:
        with signals.Signals() as arrived:
            try:
                while self._answer is None or self._output.waiting_for is not None:
                    self._turn(arrived)
            finally:
                if self._raw is not None:
                    self._raw.release()
        if self._cancelled is not None:
            raise Left(self._cancelled)
        result: dict[str, Any] = unwrap(self._answer)
        return result

    # one turn of the loop

    def _turn(self, arrived: signals.Signals) -> None:
        ready = dict(self._poll(arrived.fd))
        if arrived.fd in ready:
            for number in arrived.read():
                self._signalled(number)
        if self._sock.fileno() in ready:
            self._exchange(ready[self._sock.fileno()])
        waiting_for = self._output.waiting_for
        if waiting_for is not None and waiting_for in ready:
            self._write_output()
        if self._input is not None and self._input.fd in ready and self._input.wanted:
            self._read_input(self._input)

    def _poll(self, signal_fd: int) -> list[tuple[int, int]]:
        poll = select.poll()
        poll.register(signal_fd, _IN)
        wanted = _OUT if self._outgoing else 0
        if self._answer is None and self._output.pending_bytes < UNWRITTEN_LIMIT:
            wanted |= _IN
        if wanted:
            poll.register(self._sock.fileno(), wanted)
        if self._output.waiting_for is not None:
            poll.register(self._output.waiting_for, _OUT)
        timeout_s = None
        if self._input is not None and self._started and self._answer is None:
            timeout_s = self._input.retry_s
            if self._input.wanted:
                poll.register(self._input.fd, _IN)
        if self._deadline is not None:
            timeout_s = min(timeout_s or CANCEL_WAIT_S, self._deadline - time.monotonic())
            if timeout_s <= 0:
                raise Left(self._cancelled or 125)
        ready = poll.poll(None if timeout_s is None else timeout_s * 1000)
        if not ready and self._input is not None:
            self._input.look_again()
        return ready

    # the daemon

    def _send(self, method: str, params: dict[str, Any], id: int | None = None) -> None:
        if id is None:
            id, self._next_id = self._next_id, self._next_id + 1
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self._outgoing += dumps(message) + b"\n"

    def _about(self, method: str, **params: Any) -> None:
        self._send(f"execution/{method}", {"execution_id": self._execution_id, **params})

    def _exchange(self, events: int) -> None:
        try:
            if self._outgoing and events & _OUT:
                self._send_some()
            if events & (_IN | _BAD):
                data = self._sock.recv(READ_BYTES)
                if not data:
                    raise lost_error()
                for line in self._lines.feed(data):
                    self._message(loads(line))
        except BlockingIOError:
            return
        except OSError as error:
            raise lost_error(error.strerror) from None
        except (ValueError, RecursionError) as error:
            raise lost_error(f"its message cannot be read: {error}") from None

    def _send_some(self) -> None:
        """The descriptors go with the first byte, which is that of `execute`."""
        if self._unsent:
            del self._outgoing[: descriptors.send(self._sock, self._outgoing, self._unsent)]
            self._unsent = []
        else:
            del self._outgoing[: self._sock.send(self._outgoing)]

    def _message(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method == "execution/output":
            params = message["params"]
            data = _bytes_of(params)
            if self._pty:
                self._interrupts.printed(data)
            self._output.add(2 if params["stream"] == "stderr" else 1, data)
            if self._pty and self._keys_kill and self._interrupts.stopped(data):
                self._suspend()
        elif method == "execution/started":
            self._started = True
            if self._own is not None:
                self._own.let_go()
            self._resumed()
        elif method == "execution/pending":
            self._pending(message["params"])
        elif method == "execution/denial":
            if self._live is not None:
                denial = message["params"]["denial"]
                self._live.tell(denial, self._output.add_line)
        elif method is None and message.get("id") == RESULT_ID:
            self._answer = message
        elif method is None and message.get("id") == _QUESTION_ID and "result" in message:
            from sandboxd_client.cli.approval import tell

            tell(message["result"], self._pending_notice)
        elif method is None and message.get("id") == _WRITE_ID and self._input is not None:
            self._input.in_flight = False
            # The command closed its stdin or ended: drop the rest.
            self._input.ended = self._input.ended or "error" in message
        elif method is None and message.get("id") is None and "error" in message:
            self._answer = message

    def _pending(self, params: dict[str, Any]) -> None:
        """The command waits for an approval, which is decided elsewhere, or here with `--ask`."""
        if self._ask and not (self._started and self._pty) and terminal.is_terminal(0):
            from sandboxd_client.cli.approval import decide_here

            decide_here(self._sock.getpeername(), params["approval"])
        else:
            self._pending_notice = params
            wanted = {"approval": params["approval"], "timeout_secs": 0}
            self._send("approval/wait", wanted, _QUESTION_ID)

    # our own descriptors

    def _write_output(self) -> None:
        try:
            self._output.write()
        except OSError:
            self._cancel(128 + _SIGPIPE)
            raise Left(128 + _SIGPIPE) from None

    def _read_input(self, source: Input) -> None:
        data = source.read()
        if data is None:
            return
        if not data:
            self._about("close_stdin")
            return
        self._typed(data)
        if self._pty and self._keys_kill and self._interrupts.typed(data):
            self._cancel(128 + signals.INT)
            return
        source.in_flight = True
        from sandboxd_client.payload import base64

        params = {"execution_id": self._execution_id, "base64": base64(data)}
        self._send("execution/write", params, _WRITE_ID)

    def _typed(self, data: bytes) -> None:
        """Keys before they are sent on."""

    # signals

    def _signalled(self, number: int) -> None:
        if number == signals.WINCH or number == signals.CONT:
            self._resumed()
        elif number == signals.TSTP:
            self._suspend()
        elif self._ends(number):
            self._cancel(128 + number)
        else:
            self._about("signal", signal=int(number))

    def _ends(self, number: int) -> bool:
        if number == signals.INT:
            # Output on passed descriptors is seen before we receive execution/started.
            passes = self._own is not None and self._own.passes_output
            return not (self._started or passes) or not self._interrupts.first()
        return number in (signals.TERM, signals.HUP)

    def _cancel(self, code: int) -> None:
        if self._cancelled is not None:
            raise Left(code)
        self._cancelled = code
        self._deadline = time.monotonic() + CANCEL_WAIT_S
        self._about("cancel")
        self._flush()

    def _suspend(self) -> None:
        self._about("signal", signal="STOP")
        self._flush()
        if self._raw is not None:
            self._raw.release()
        signals.stop_self()
        self._about("signal", signal="CONT")
        self._resumed()

    def _resumed(self) -> None:
        """In the foreground (again), or in a window of another size."""
        if not self._started or self._answer is not None:
            return
        if self._raw is not None:
            self._raw.claim()
        if self._pty and terminal.size() != self._size:
            self._size = terminal.size()
            self._about("resize", rows=self._size[0], cols=self._size[1])

    def _flush(self) -> None:
        """As much as the socket takes now: enough before we stop or leave."""
        try:
            while self._outgoing:
                self._send_some()
        except OSError:
            return


def _bytes_of(output: dict[str, Any]) -> bytes:
    from sandboxd_client.payload import decode

    return decode(output["data"], output.get("encoding", "utf-8"))
