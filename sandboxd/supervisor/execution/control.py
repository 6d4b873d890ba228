"""What clients do with an execution while it exists: write, close stdin, signal, resize, cancel."""

from __future__ import annotations

import logging
from contextlib import suppress

import anyio

from sandboxd.supervisor.execution.result import Ended
from sandboxd.supervisor.execution.stdio.command_io import CommandIo
from sandboxd.supervisor.execution.stdio.ends.current_platform import ends
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd.types import Process
from sandboxd_proto.errors import InvalidParams, PolicyNotSupported

log = logging.getLogger(__name__)


class ExecutionControl:
    """Usable before the command runs: what arrives early is delivered when it has started.

    `ended_by`: why the daemon ended the command; the first reason is the one that is reported.
    `failed`: the output cannot be read any more.
    """

    def __init__(self, execution_id: str, request: ExecuteRequest, io: CommandIo) -> None:
        self.ended_by: Ended | None = None
        # A timeout that the session's budget shortened is reported as the budget's.
        self.at_timeout: Ended = "budget" if request.timeout_is_budget else "timeout"
        self.failed = False
        self.over = False
        self._cancel_asked: anyio.Event | None = None  # made for the first one who waits for it
        self._was_cancelled = False
        self.waiting: anyio.CancelScope | None = None  # while it waits for a sandbox
        self._id = execution_id
        self._stdin_open = request.stdin_open
        self._has_pty = request.pty is not None
        self._io = io
        self._process: Process | None = None
        self._early_signals: list[int] = []
        self._size: tuple[int, int] | None = None

    @property
    def cancel_asked(self) -> anyio.Event:
        """Set when the execution is to end, also while it waits for an approval."""
        if self._cancel_asked is None:
            self._cancel_asked = anyio.Event()
            if self._was_cancelled:
                self._cancel_asked.set()
        return self._cancel_asked

    def ask_to_cancel(self) -> None:
        self._was_cancelled = True
        if self._cancel_asked is not None:
            self._cancel_asked.set()

    @property
    def cancelled(self) -> bool:
        return self.ended_by == "cancelled"

    async def write(self, data: bytes) -> None:
        await self._until_writable()
        await self._io.stdin.write(data)

    async def close_stdin(self) -> None:
        await self._until_writable()
        await self._io.stdin.end()

    async def _until_writable(self) -> None:
        if not self._stdin_open and not self._has_pty:
            raise InvalidParams(
                "the stdin of this execution was not left open", field="execution_id",
                remedy='start it with "stdin_open": true',
            )  # fmt: skip
        if self._io.pty_ready is not None:
            await self._io.pty_ready.wait()

    def send_signal(self, number: int) -> None:
        if self._process is not None:
            self._process.signal(number)
        else:
            self._early_signals.append(number)

    def resize(self, rows: int, cols: int) -> None:
        if not self._has_pty:
            raise InvalidParams(
                "this execution has no terminal", field="execution_id",
                remedy='start it with "pty": {"rows": 24, "cols": 80}',
            )  # fmt: skip
        self._size = (rows, cols)
        master = self._process.pty if self._process is not None else None
        if master is not None:
            ends.resize_terminal(master, rows, cols)

    @property
    def has_own_jobs(self) -> bool:
        master = self._process.pty if self._process is not None else None
        return master is not None and ends.has_own_jobs(master)

    def cancel(self) -> None:
        self.end("cancelled")
        self.ask_to_cancel()
        if self.waiting is not None:
            self.waiting.cancel()

    def end(self, why: Ended) -> None:
        """Kill the whole tree."""
        if self.ended_by is None and not self.over:
            self.ended_by = why
        if why == "cancelled":
            self._io.hurry()
        self.kill()

    def fail(self, error: Exception) -> None:
        """A bug of the daemon: the output is not read any more, so the command is killed."""
        log.error("the output of %s could not be read", self._id, exc_info=error)
        self.failed = True
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    # what the execution does with it

    def attach(self, process: Process) -> None:
        self._process = process
        for number in self._early_signals:
            with suppress(PolicyNotSupported):  # the sender of the signal was answered already
                process.signal(number)
        if self._size is not None:
            with suppress(PolicyNotSupported):  # so was the one who resized it
                self.resize(*self._size)

    def detach(self) -> None:
        self._process = None
