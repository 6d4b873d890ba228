"""Connect one running command to our own descriptors: a single poll() loop without threads.

Its events are: a message of the daemon, room in stdout, a piece of stdin, a signal. The loop ends
when the daemon's answer is written, or with a reason to leave.
"""

from __future__ import annotations

import os
import select
import sys
import time

assert sys.platform != "win32"

from sandboxd_client.cli import signals  # noqa: E402 - after the platform is known
from sandboxd_client.cli.execute import NOT_WRITTEN, RESULT_ID, Left, message  # noqa: E402
from sandboxd_client.handshake import lost_error, unwrap  # noqa: E402
from sandboxd_client.jsontext import LineBuffer, loads  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandboxd_client.caller import Outgoing
    from sandboxd_client.cli.execute import Hear
    from sandboxd_client.cli.input import Input
    from sandboxd_client.cli.live_denials import LiveDenials
    from sandboxd_client.cli.output import TerminalOutput
    from sandboxd_client.cli.raw_mode import RawMode
    from sandboxd_client.cli.streams import Streams
    from sandboxd_client.cli.suspension import Suspension
    from sandboxd_client.cli.terminal_approver import Asker

READ_BYTES = 64 * 1024  # a larger buffer is mapped and unmapped for each read
UNWRITTEN_LIMIT = 1024 * 1024
# After a cancel the answer comes when the whole tree is dead; then closing the socket must do.
CANCEL_WAIT_S = 10.0
TERM_GRACE_S = 2.0  # between SIGTERM and the cancel, as at a timeout
_IN, _OUT = select.POLLIN, select.POLLOUT
_BAD = select.POLLHUP | select.POLLERR | select.POLLNVAL
_WRITE_ID, _QUESTION_ID, _STOP_ID = RESULT_ID + 1, RESULT_ID + 2, RESULT_ID + 3
_SIGPIPE, _EPIPE, _EIO = 13, 32, 5
_CTRL_Z = b"\x1a"
_SHOW_S = 1.0


class Relay:
    def __init__(
        self, outgoing: Outgoing, execution_id: str, *, output: TerminalOutput, input: Input | None,
        raw: RawMode | None, pty: bool, streams: bool, own: Streams | None = None,
        keys_kill: bool = True, live: Hear | None = None, ask: Asker | None = None,
    ) -> None:  # fmt: skip
        """`streams`: the daemon tells events. `own`: descriptors of ours that go with a request.
        `keys_kill`: Ctrl-C twice kills a program in a terminal that does not take it. `live`: hears
        of denials while the command runs. `ask`: decides what it waits for, on this terminal."""
        self._outgoing = outgoing
        self._sock = outgoing.sock
        self._execution_id = execution_id
        self._output = output
        self._input = input
        self._raw = raw
        self._pty = pty
        self._size = _terminal_size() if pty else None
        self._interrupts = signals.Interrupts()
        self._own = own
        self._file = own.file if own is not None else None
        self._keys_kill = keys_kill
        self._hear = live
        self._live: LiveDenials | None = None
        self._ask = ask
        self._lines = LineBuffer()
        self._next_id = _STOP_ID + 1
        self._answer: dict[str, Any] | None = None
        self._started = not streams
        self._pending_notice: dict[str, Any] = {}
        self._questions: list[dict[str, Any]] = []  # for `ask`
        self._cancelled: int | None = None  # the exit code that the reason for it stands for
        self._deadline: float | None = None
        self._told_to_end: int | None = None  # the exit code, from SIGTERM or SIGHUP on
        self._cancel_at: float | None = None  # SIGTERM was passed on
        self._suspension: Suspension | None = None  # after Ctrl-Z
        self._held: list[tuple[int, bytes]] = []

    def until_answer(self, arrived: signals.Signals) -> dict[str, Any]:
        """The result. Raises the daemon's error, ConnectionLost or Left."""
        try:
            while self._answer is None or self._output.waiting_for is not None:
                self._turn(arrived)
        finally:
            if self._raw is not None:
                self._raw.release()
        code = self._told_to_end if self._cancelled is None else self._cancelled
        if code is not None:
            raise Left(code)
        result: dict[str, Any] = unwrap(self._answer)
        if self._output.is_lost:
            self._say("error: the output could not be written: stdout is closed")
            self._show_all()
            return {**result, "output_lost": True}
        return result

    # one turn of the loop

    def _turn(self, arrived: signals.Signals) -> None:
        ready = dict(self._poll(arrived.fd))
        if self._raw is not None and not self._raw.is_claimed:
            self._resumed()
        if self._suspension is not None and not self._suspension.wanted and not ready:
            self._suspension.look()
            if self._suspension.wanted:
                self._ask_for_jobs()
        if arrived.fd in ready:
            for number in arrived.read():
                self._signalled(number)
        if self._sock.fileno() in ready:
            self._exchange(ready[self._sock.fileno()])
        while self._ask is not None and self._questions and self._answer is None:
            question = self._questions.pop(0)
            if self._cancelled is None:
                self._decide_here(self._ask, question, arrived)
        waiting_for = self._output.waiting_for
        if waiting_for is not None and waiting_for in ready:
            self._write_output()
        if self._input is not None and self._input.fd in ready and self._input.wanted:
            self._read_input(self._input)
        if self._file is not None and self._file.waiting_for in ready:
            self._file.feed()

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
        if self._file is not None and self._answer is None and self._file.waiting_for is not None:
            poll.register(self._file.waiting_for, _OUT)
        timeout_s = None
        if self._input is not None and self._started and self._answer is None:
            timeout_s = self._input.retry_s
            if self._input.wanted:
                poll.register(self._input.fd, _IN)
        if self._deadline is not None:
            timeout_s = min(timeout_s or CANCEL_WAIT_S, self._deadline - time.monotonic())
            if timeout_s <= 0:
                raise Left(self._cancelled or 125)
        if self._cancel_at is not None and self._told_to_end is not None:
            grace_s = max(0.0, self._cancel_at - time.monotonic())
            if grace_s == 0:
                self._cancel(self._told_to_end)
            timeout_s = grace_s if timeout_s is None else min(timeout_s, grace_s)
        asked = self._suspension
        if asked is not None and not asked.wanted and (left_s := asked.left_s) is not None:
            timeout_s = left_s if timeout_s is None else min(timeout_s, left_s)
        if self._live is not None and (left_s := self._live.left_s) is not None:
            timeout_s = left_s if timeout_s is None else min(timeout_s, left_s)
        ready = poll.poll(None if timeout_s is None else timeout_s * 1000)
        if self._live is not None:
            self._live.tell_due(self._output.add_line)
        if not ready and self._input is not None:
            self._input.look_again()
        return ready

    # the daemon

    def _send(self, method: str, params: dict[str, Any], id: int | None = None) -> None:
        if id is None:
            id, self._next_id = self._next_id, self._next_id + 1
        self._outgoing.add(message(method, params, id))

    def _about(self, method: str, **params: Any) -> None:
        self._send(f"execution/{method}", {"execution_id": self._execution_id, **params})

    def _exchange(self, events: int) -> None:
        try:
            if self._outgoing and events & _OUT:
                self._outgoing.send_some()
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

    def _message(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method == "execution/output":
            params = message["params"]
            data = _bytes_of(params)
            if self._own is not None:
                self._own.keep(params["stream"], data)
            if self._pty:
                self._interrupts.printed(data)
            if params["stream"] == "stderr":  # beside a terminal it has no part in Ctrl-Z
                self._output.add(2, data)
            else:
                self._print(1, data)
        elif method == "execution/started":
            self._started = True
            if self._own is not None:
                self._own.let_go()
            self._resumed()
        elif method == "execution/pending":
            self._pending(message["params"])
        elif method == "execution/denial":
            if self._hear is not None:
                self._live = self._hear()
                self._live.hear(message["params"]["denial"], self._output.add_line)
        elif method is None and message.get("id") == RESULT_ID:
            self._answer = message
            self._print_held()
        elif method is None and message.get("id") == _STOP_ID:
            self._suspend_unless_job(message)
        elif method is None and message.get("id") == _QUESTION_ID and "result" in message:
            from sandboxd_client.cli.approval import tell

            tell(message["result"], self._pending_notice, self._say, ask=self._ask is not None)
        elif method is None and message.get("id") == _WRITE_ID and self._input is not None:
            self._input.in_flight = False
            # The command closed its stdin or ended: drop the rest.
            self._input.ended = self._input.ended or "error" in message
        elif method is None and message.get("id") is None and "error" in message:
            self._answer = message

    def _say(self, text: str) -> None:
        self._output.add_line(f"sandboxctl: {text}\n")

    def _print(self, fd: int, data: bytes) -> None:
        asked = self._suspension
        if asked is None:
            self._stop_in_background(data)
            self._output.add(fd, data)
            return
        if asked.wanted:
            self._held.append((fd, data))
            return
        now, later = asked.shown(data)
        self._output.add(fd, now)
        if asked.wanted:
            self._held.append((fd, later))
            self._ask_for_jobs()
        elif asked.over:
            self._suspension = None

    def _stop_in_background(self, data: bytes) -> None:
        """The kernel stops a background job that sets up the terminal; the command's own terminal
        is another one, so this is done here. Again if it is continued in the background."""
        if self._raw is None or self._answer is not None or b"\x1b" not in data:
            return
        from sandboxd_client.cli.raw_mode import foreground

        while not foreground(0):
            from sandboxd_client.cli.suspension import sets_up

            if not sets_up(data) or not self._suspend(signals.TTOU):
                return

    def _ask_for_jobs(self) -> None:
        """What is printed meanwhile is held: it is for when we go on."""
        self._send("execution/status", {"execution_id": self._execution_id}, _STOP_ID)

    def _suspend_unless_job(self, answer: dict[str, Any]) -> None:
        """The jobs of a shell inside stop alone."""
        self._suspension = None
        status = answer.get("result") or {}
        if status.get("state") == "running" and not status.get("job_control"):
            self._suspend()
        self._print_held()

    def _print_held(self) -> None:
        held, self._held = self._held, []
        for fd, data in held:
            self._stop_in_background(data)
            self._output.add(fd, data)

    def _pending(self, params: dict[str, Any]) -> None:
        """The command waits for an approval, which is decided elsewhere, or here with `--ask`."""
        if self._ask is not None and os.isatty(0):
            self._questions.append(params)
        else:
            self._tell(params["approval"], params)

    def _tell(self, approval: str, notice: dict[str, Any]) -> None:
        self._pending_notice = notice
        self._send("approval/wait", {"approval": approval, "timeout_secs": 0}, _QUESTION_ID)

    def _decide_here(self, ask: Asker, params: dict[str, Any], arrived: signals.Signals) -> None:
        """The terminal is the question's until the answer. What the command prints meanwhile stays
        with the daemon, and its keys are dropped."""
        from sandboxd_proto.errors import SandboxdError

        self._show_all()
        if self._raw is not None:
            self._raw.release()
        try:
            answer = ask.decide(params["approval"], arrived)
        except SandboxdError as error:
            if not self._started:
                raise
            self._say(f"it cannot be decided here: {error}")
            answer = "left"
        self._resumed()
        if answer == "interrupted":
            signals.user_sent(signals.INT, typed=True)
            self._cancel(128 + signals.INT)
        elif answer == "left":
            self._tell(params["approval"], {})
        for number in ask.arrived:
            self._signalled(number)

    # our own descriptors

    def _write_output(self) -> None:
        try:
            self._output.write()
        except OSError as error:
            code = 128 + _SIGPIPE
            if error.errno not in (_EPIPE, _EIO):  # the reader or the terminal is gone
                from sandboxd_client.cli.screen import say

                say(f"error: the output could not be written: {error.strerror}")
                code = NOT_WRITTEN
            self._cancel(code)
            raise Left(code) from None

    def _read_input(self, source: Input) -> None:
        data = source.read()
        if data is None:
            return
        if not data:
            self._about("close_stdin")
            return
        self._typed(data)
        if self._suspension is not None and not self._suspension.wanted:
            self._suspension = None
        if self._pty and self._keys_kill and _CTRL_Z in data and self._suspension is None:
            from sandboxd_client.cli.suspension import Suspension

            self._suspension = Suspension(burst=data != _CTRL_Z)
        if self._pty:
            for number, key in signals.KEYS.items():
                if key in data:
                    signals.user_sent(number, typed=True)
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
        if number in signals.KEYS:
            signals.user_sent(number, typed=False)
        if number == signals.WINCH or number == signals.CONT:
            self._resumed()
        elif number == signals.TSTP:
            self._suspend()
        elif number in (signals.TERM, signals.HUP) and self._is_running and not self._told_to_end:
            self._told_to_end = 128 + number
            self._cancel_at = time.monotonic() + TERM_GRACE_S
            self._about("signal", signal=int(signals.TERM))
        elif self._ends(number):
            self._cancel(128 + number)
        else:
            self._about("signal", signal=int(number))

    def _ends(self, number: int) -> bool:
        if number == signals.INT:
            return not self._is_running or not self._interrupts.first()
        return number in (signals.TERM, signals.HUP)

    @property
    def _is_running(self) -> bool:
        """Output on passed descriptors is seen before we receive execution/started."""
        return self._started or (self._own is not None and self._own.passes_output)

    def _cancel(self, code: int) -> None:
        if self._cancelled is not None:
            raise Left(code)
        self._cancelled, self._cancel_at = code, None
        self._deadline = time.monotonic() + CANCEL_WAIT_S
        self._about("cancel")
        self._outgoing.flush()

    def _suspend(self, number: int = signals.STOP) -> bool:
        """Whether we were stopped, and are continued."""
        self._suspension = None
        self._about("signal", signal="STOP")
        self._outgoing.flush()
        self._show_all()
        if self._raw is not None:
            self._raw.release()
        was_stopped = signals.stop_self(number)
        self._about("signal", signal="CONT")
        self._resumed()
        return was_stopped

    def _resumed(self) -> None:
        """In the foreground (again), or in a window of another size."""
        if not self._started or self._answer is not None:
            return
        if self._raw is not None:
            self._raw.claim()
        if self._pty and (size := _terminal_size()) != self._size:
            self._size = size
            self._about("resize", rows=size[0], cols=size[1])

    def _show_all(self) -> None:
        """What was printed before the stop, unless the terminal does not take it."""
        deadline = time.monotonic() + _SHOW_S
        while (fd := self._output.waiting_for) is not None and time.monotonic() < deadline:
            poll = select.poll()
            poll.register(fd, _OUT)
            if poll.poll(_SHOW_S * 1000):
                self._write_output()


def _terminal_size() -> tuple[int, int]:
    from sandboxd_client.cli.terminal import size

    return size()


def _bytes_of(output: dict[str, Any]) -> bytes:
    from sandboxd_client.payload import decode

    return decode(output["data"], output.get("encoding", "utf-8"))
