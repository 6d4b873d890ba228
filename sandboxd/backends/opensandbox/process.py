"""One command in a sandbox of the server: its output, its end, and the ways to end it.

execd reports an exit code or nothing. A stream that ends without one is an unknown result, which
is an error. A sandbox that serves one command is deleted when the command has ended, before the
result is given: what it left running is dead then. Where the command worked on copies of folders,
they are fetched before that.
"""

from __future__ import annotations

import logging
import signal

import anyio
from msgspec.structs import replace

from sandboxd.backends.opensandbox.events import ExecdEvent, output_bytes
from sandboxd.backends.opensandbox.http_client import ApiError
from sandboxd.backends.opensandbox.output import OutputPipes
from sandboxd.backends.opensandbox.place import UNCONFIRMED, RemotePlace, bring_back
from sandboxd.types import BroughtBack, Command, ExitReport, Stdio, TreeUsage
from sandboxd_proto.errors import (
    ExecFailed,
    InternalError,
    PolicyNotSupported,
    SandboxdError,
    SandboxUnavailable,
)

log = logging.getLogger(__name__)
BEGIN_S = 10.0  # for the id of a command that is to be ended
KILL_GRACE_S = 3.0
# execd ends a command; it cannot send other signals. SIGKILL: with its sandbox where it may.
_ENDS = (signal.SIGTERM, signal.SIGINT, 9)
_NO_USAGE = TreeUsage(0.0, 0)


class ExecdProcess:
    """`alone`: the sandbox serves this command only, and ends with it."""

    pty = None
    filter_loaded = False

    def __init__(self, place: RemotePlace, command: Command, stdio: Stdio, *, alone: bool) -> None:
        self._place = place
        self._command = command
        self._alone = alone
        self._copy = place.copy
        self._pipes = OutputPipes(stdio)
        self._id = ""
        self._signal = 0  # what it was asked to end by
        self._begun = anyio.Event()
        self._ending = anyio.Event()
        self._killing = anyio.Event()
        self._over = anyio.Event()
        self._reading = anyio.CancelScope()
        self._report: ExitReport | None = None
        self._error: SandboxdError | None = None

    # what the supervisor uses

    async def started(self) -> None:
        await self._begun.wait()
        if self._error is not None:
            raise self._error

    async def wait(self, *, tree: bool = True) -> ExitReport:
        await self._over.wait()
        if self._error is not None:
            raise self._error
        assert self._report is not None
        return self._report

    def signal(self, number: int, *, whole_tree: bool = False) -> None:
        if number not in _ENDS:
            raise PolicyNotSupported(
                f"execd cannot send the signal {number}, it can only end a command",
                field="signal", remedy="send SIGTERM, SIGINT or SIGKILL",
            )  # fmt: skip
        if number == 9:
            self.kill()
        else:
            self._signal = self._signal or number
            self._ending.set()

    def kill(self) -> None:
        self._signal = 9
        self._pipes.give_up()
        self._ending.set()
        self._killing.set()

    def close(self) -> None:
        if not self._over.is_set():
            self.kill()

    async def bring_back(self) -> BroughtBack:
        return await bring_back(self._place, self._command, alone=self._alone)

    # the task that carries it

    async def run(self) -> None:
        """To the end of the command. No error leaves it."""
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._obey)
                try:
                    await self._read()
                except (SandboxdError, ApiError) as error:  # outside the group it would be wrapped
                    failure = error
                tasks.cancel_scope.cancel()
            await self._finish(broken=failure is not None)
            if failure is not None:
                raise failure
        except SandboxdError as error:
            self._error = error
        except ApiError as error:
            self._error = SandboxUnavailable(f"execd refused the command: {error}")
        except Exception:
            log.exception("a command of a remote sandbox could not be carried")
            self._error = InternalError("internal error; see the daemon's log")
        finally:
            if self._report is None and self._error is None:
                self._error = SandboxUnavailable("the daemon stopped carrying the command")
            if self._copy is not None:
                self._copy.end()
            self._pipes.close()
            self._begun.set()
            self._over.set()

    async def _finish(self, *, broken: bool) -> None:
        """Nothing of the command runs when its result is given; a broken stream stops nothing."""
        if not self._alone:
            if broken and self._id:
                await self._interrupt()
        elif self._copy is not None and not broken:
            return  # the supervisor brings its changes back, which ends the sandbox
        elif not await self._place.end():
            self._lose(UNCONFIRMED)

    async def _read(self) -> None:
        command = self._command
        try:
            with self._reading:
                async with self._place.execd.run(
                    command.argv, cwd=command.cwd, envs=dict(command.env)
                ) as events:
                    async for event in events:
                        await self._take(event)
                        if self._report is not None or self._error is not None:
                            return
        except (SandboxdError, ApiError):
            if not self._killing.is_set():
                raise
        if self._killing.is_set():
            self._report = self._report or ExitReport(None, 9, _NO_USAGE)
            return
        raise SandboxUnavailable(
            "the result of the command is unknown: execd's stream ended without an exit code",
            remedy="the sandbox may have expired, been deleted or run out of memory; run it again",
        )

    async def _take(self, event: ExecdEvent) -> None:
        match event.kind:
            case "init":
                self._id = self._id or event.text
                self._begun.set()
            case "stdout" | "stderr":
                self._begun.set()
                await self._pipes.write(event.kind, output_bytes(event.text))
            case "execution_complete":
                self._report = ExitReport(0, None, _NO_USAGE)
            case "error":
                self._end_with(event.text)

    def _end_with(self, value: str) -> None:
        """`value`: the exit code, -1 for a signal or a timeout, or why it did not start."""
        if value.isdecimal() and int(value) < 256:
            self._report = ExitReport(int(value), None, _NO_USAGE)
        elif self._signal:
            self._report = ExitReport(None, self._signal, _NO_USAGE)
        elif value == "-1":
            self._error = InternalError(
                "the command was ended by a signal, and execd does not say by which",
                remedy="a sandbox that has no memory left ends commands so",
            )
        else:
            self._error = ExecFailed(
                f"{self._command.argv[0]!r} could not be executed in the sandbox: "
                f"{self._place.execd.said(value)}"
            )

    async def _obey(self) -> None:
        """End the command when that is asked for; with its sandbox when it does not end."""
        await self._ending.wait()
        gentle = not self._alone or self._copy is not None
        if gentle or not self._killing.is_set():
            await self._interrupt()
        await self._killing.wait()
        if gentle:
            await self._interrupt()
            await anyio.sleep(KILL_GRACE_S)
        await self._place.end()
        self._reading.cancel()

    async def _interrupt(self) -> None:
        with anyio.move_on_after(BEGIN_S):
            await self._begun.wait()
        if not self._id:
            return
        try:
            await self._place.execd.interrupt(self._id)
        except (SandboxdError, ApiError) as error:
            log.warning("a command could not be interrupted: %s", error)

    def _lose(self, why: str) -> None:
        if self._report is not None:
            self._report = replace(self._report, lost=why)
