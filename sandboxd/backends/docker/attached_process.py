"""One command in a container, seen through the engine: its streams relayed, its end reported.

An attach that nobody reads blocks the engine's kill and inspect of that container, so what comes is
read to the end whatever becomes of the reader, and every call on the way to the end is bounded.
"""

from __future__ import annotations

import logging
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from sandboxd.backends.docker.engine import Engine, EngineError
from sandboxd.backends.docker.relay import LocalEnds, read_some, write_all
from sandboxd.sandbox import Command, ExitReport, LimitName, Stdio, TreeUsage
from sandboxd_proto.errors import SandboxdError

if TYPE_CHECKING:
    from aiodocker.stream import Stream

log = logging.getLogger(__name__)
KILL_S = 3.0
DRAIN_S = 2.0
LOOK_EVERY_S = 0.5


class AttachedProcess:
    filter_loaded = False

    def __init__(
        self, engine: Engine, container: str, stream: Stream, command: Command,
        stdio: Stdio | None,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._container = container
        self._stream = stream
        self._limits = command.limits
        self._ends = LocalEnds(stdio, command.pty)
        self._tasks: TaskGroup | None = None
        self._scope = anyio.CancelScope()
        self._sent: set[int] = set()
        self._exceeded: LimitName | None = None
        self._ended = anyio.Event()
        self._drained = anyio.Event()
        self._report = ExitReport(None, None, usage=TreeUsage(0.0, 0))

    @property
    def pty(self) -> int | None:
        return self._ends.master

    def run(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        tasks.start_soon(self._carry)

    async def wait(self, *, tree: bool = True) -> ExitReport:
        """The container ends with its first process, so the tree is always gone with it."""
        await self._ended.wait()
        return self._report

    def signal(self, number: int, *, whole_tree: bool = False) -> None:
        self._sent.add(number)
        if self._tasks is not None and not self._ended.is_set():
            self._tasks.start_soon(self._kill, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        self._scope.cancel()
        self._ends.close()

    # the tasks behind it

    async def _carry(self) -> None:
        """Everything that this command needs, until its end; no error leaves it."""
        with self._scope:
            try:
                async with anyio.create_task_group() as relays:
                    relays.start_soon(self._outward)
                    relays.start_soon(self._inward)
                    if self._limits.cpu_s is not None:
                        relays.start_soon(self._watch_cpu, self._limits.cpu_s)
                    if self._ends.master is not None:
                        relays.start_soon(self._follow_size)
                    self._report = await self._until_end()
                    with anyio.move_on_after(DRAIN_S):
                        await self._drained.wait()
                    relays.cancel_scope.cancel()
            except Exception:
                log.exception("a container's streams broke")
                self._report = _lost("its streams broke")
        self._ends.close_outputs()
        self._ended.set()

    async def _outward(self) -> None:
        """To the very end: a reader that is gone changes nothing."""
        try:
            while (message := await self._stream.read_out()) is not None:
                await write_all(self._ends.output(message.stream), message.data)
        except Exception as error:  # aiohttp's many ways to say that a connection ended
            log.debug("the attached stream ended: %s", error)
        self._ends.close_outputs()
        self._drained.set()

    async def _inward(self) -> None:
        with suppress(OSError, RuntimeError, AssertionError):  # the stream may end at any time
            while data := await read_some(self._ends.stdin):
                await self._stream.write_in(data)
        response = self._stream._resp
        transport = response.connection.transport if response and response.connection else None
        # TLS has no half-closed connections: the command's stdin then stays open.
        if self._ends.master is None and transport is not None and transport.can_write_eof():
            with suppress(OSError, RuntimeError):
                transport.write_eof()

    async def _until_end(self) -> ExitReport:
        try:
            code = await self._engine.wait(self._container)
            state = (await self._engine.inspect(self._container))["State"]
        except EngineError as error:
            return _lost(f"the engine ended the container under the command: {error.message}")
        except SandboxdError as error:
            return _lost(f"the container was lost with its engine: {error.message}")
        if state.get("OOMKilled") and code != 0:
            self._exceeded = self._exceeded or "memory"
        # A signal that we sent is known; any other 128+n may as well be an exit code.
        number = code - 128
        killed = number if number in self._sent else None
        return ExitReport(
            exit_code=None if killed else code, signal=killed,
            usage=TreeUsage(0.0, 0), limit=self._exceeded,
        )  # fmt: skip

    async def _kill(self, number: int) -> None:
        for last in (False, True):
            try:
                with anyio.fail_after(KILL_S):
                    await self._engine.kill(self._container, number)
                return
            except (TimeoutError, SandboxdError) as error:
                if last or number != signal.SIGKILL:
                    log.warning("a container could not be signalled: %s", error)
                    return
                # Closing what nobody reads frees the engine's hands.
                await self._stream.close()
            except EngineError:
                return  # it has ended

    async def _watch_cpu(self, limit_s: float) -> None:
        while True:
            await anyio.sleep(LOOK_EVERY_S)
            used = await self._engine.cpu_seconds(self._container)
            if used is not None and used > limit_s:
                self._exceeded = "cpu"
                self.kill()
                return

    async def _follow_size(self) -> None:
        """The daemon resizes its own end of the terminal; the container's follows."""
        known = self._ends.size()
        while (size := self._ends.size()) is not None:
            await anyio.sleep(LOOK_EVERY_S / 5)
            if size != known:
                known = size
                with suppress(EngineError, SandboxdError):
                    await self._engine.resize(self._container, *size)


def _lost(why: str) -> ExitReport:
    return ExitReport(None, None, usage=TreeUsage(0.0, 0), lost=why)
