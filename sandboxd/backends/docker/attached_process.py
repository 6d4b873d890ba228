"""The daemon's side of a carried command: between the engine's stream and an InitProcess.

An attach that nobody reads blocks the engine's kill and inspect of that container, so what comes is
read to the end whatever becomes of the reader, and every call on the way to the end is bounded.
"""

from __future__ import annotations

import logging
import signal
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from sandboxd.backends.docker.engine import Engine, EngineError
from sandboxd.backends.docker.framing import Said, Unframer
from sandboxd.backends.docker.relay import STDERR, LocalEnds, Writer, read_some
from sandboxd.linux import init_wire as wire
from sandboxd.linux import packets
from sandboxd.linux.init_sandbox import InitSandbox
from sandboxd.sandbox import Command, Stdio
from sandboxd_proto.errors import SandboxdError

if TYPE_CHECKING:
    from aiodocker.stream import Stream

log = logging.getLogger(__name__)
KILL_S = 3.0
DRAIN_S = 2.0
EARLY_MAX = 64 << 20
HURRY_S = 0.2  # for a reader that still reads; one that does not must not hold up the kill
SIZE_EVERY_S = 0.1
# carried.c's: whom the signal after it is for. SIGKILL needs no such word.
NEXT_TO_MAIN, NEXT_TO_TREE = 63, 62
_NO_USAGE = struct.pack("<QQQ", 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Streams:
    """Attached to a container: its stdin, and its stdout and stderr."""

    given: Stream
    output: Stream


class Bridge:
    """`channel`: the other end of an InitProcess's, which hears there what the keeper says."""

    def __init__(
        self, engine: Engine, container: str, streams: Streams, word: str, channel: socket.socket,
        sandbox: InitSandbox, command: Command, stdio: Stdio | None,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._container = container
        self._streams = streams
        self._channel = channel
        self._channel.setblocking(False)
        self._sandbox = sandbox
        self._ends = LocalEnds(stdio, command.pty)
        self._unframer = Unframer(word)
        self._writer = Writer()
        self._framed = STDERR if command.pty is None else 1
        self._last: bytes | None = None
        self._early: list[tuple[int, bytes]] = []
        self._started = False
        self._exited = False
        self._killed = False
        self._drained = anyio.Event()
        self._scope = anyio.CancelScope()

    def run(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._carry)

    def close(self) -> None:
        self._scope.cancel()
        self._ends.close()
        self._channel.close()

    async def _carry(self) -> None:
        """Everything that this command needs, until its end; no error leaves it."""
        with self._scope:
            try:
                async with anyio.create_task_group() as relays:
                    relays.start_soon(self._outward)
                    relays.start_soon(self._inward)
                    relays.start_soon(self._obey)
                    if self._ends.master is not None:
                        relays.start_soon(self._follow_size)
                    await self._until_end()
                    relays.cancel_scope.cancel()
            except Exception:
                log.exception("a container's streams broke")
                self._sandbox.lost = "the container's streams broke"
        self._ends.close_outputs()
        anyio.notify_closing(self._channel)
        self._channel.close()

    async def _outward(self) -> None:
        """To the very end: a reader that is gone changes nothing."""
        try:
            while (message := await self._streams.output.read_out()) is not None:
                data = message.data
                if message.stream == self._framed:
                    data, said = self._unframer.feed(data)
                    for one in said:
                        self._heard(one)
                await self._print(message.stream, data)
        except wire.InitLied as lie:
            self._sandbox.lost = f"the sandbox's init was tampered with: {lie}"
            await self._kill(signal.SIGKILL)
        except Exception as error:  # aiohttp's many ways to say that a connection ended
            log.debug("the attached stream ended: %s", error)
        await self._writer.write(self._ends.output(self._framed), self._unframer.rest())
        self._ends.close_outputs()
        self._drained.set()

    async def _print(self, stream: int, data: bytes) -> None:
        """Nobody reads before it is known that the command has started, and that may be told only
        after much of its output: the engine does not keep the order of two streams."""
        self._early.append((stream, data))
        if not self._started:
            if sum(len(piece) for _, piece in self._early) > EARLY_MAX:
                raise wire.InitLied("no word of a command that prints and prints")
            return
        early, self._early = self._early, []
        for to, piece in early:
            await self._writer.write(self._ends.output(to), piece)

    def _heard(self, said: Said) -> None:
        if said.speaker == "control":
            match wire.decode_control(said.message):
                case wire.IsolationLost(what):
                    self._sandbox.lost = f"the mount at {what} changed under the running command"
                case wire.SetupFailed(stage, number, detail):
                    self._sandbox.lost = f"{stage.name.lower()}: {detail or number}"
            return
        match wire.decode_channel(said.message):
            case wire.Started():
                self._started = True
                master = self._ends.master
                socket.send_fds(self._channel, [said.message], [] if master is None else [master])
            case wire.Gone():
                self._last = said.message  # after the engine has said what it did
            case heard:
                self._exited = self._exited or isinstance(heard, wire.Exited)
                self._send(said.message)

    async def _inward(self) -> None:
        with suppress(OSError, RuntimeError, AssertionError):  # the stream may end at any time
            while data := await read_some(self._ends.stdin):
                await self._streams.given.write_in(data)
        if self._ends.master is None:
            with suppress(OSError, RuntimeError, AssertionError):
                await self._streams.given.close()

    async def _obey(self) -> None:
        """What the supervisor wants of the command: a signal, or its end."""
        while data := await packets.receive(self._channel):
            if data[0] == wire.MessageType.SIGNAL:
                number, scope = struct.unpack_from("<II", data, wire.HEADER_BYTES)
                await self._kill(NEXT_TO_TREE if scope == wire.SignalScope.TREE else NEXT_TO_MAIN)
                await self._kill(number)
            elif data[0] == wire.MessageType.KILL:
                await self._kill(signal.SIGKILL)
        await self._kill(signal.SIGKILL)  # it was let go of

    async def _until_end(self) -> None:
        try:
            await self._engine.wait(self._container)
            state = (await self._engine.inspect(self._container))["State"]
        except EngineError as error:
            self._lose(f"the engine ended the container under the command: {error.message}")
            return
        except SandboxdError as error:
            self._lose(f"the container was lost with its engine: {error.message}")
            return
        self._ends.close_input()
        with anyio.move_on_after(DRAIN_S):
            await self._drained.wait()
        if state.get("OOMKilled"):
            self._say(wire.MessageType.LIMIT, struct.pack("<I", wire.LimitKind.MEMORY))
        ended = self._killed or bool(state.get("OOMKilled"))
        if not self._exited and ended and self._sandbox.lost is None:
            self._say(wire.MessageType.EXITED, struct.pack("<I", signal.SIGKILL) + _NO_USAGE)
        if self._last is not None:
            self._send(self._last)
        elif ended and self._sandbox.lost is None:
            self._say(wire.MessageType.GONE, _NO_USAGE)

    def _lose(self, why: str) -> None:
        if self._last is not None:
            self._send(self._last)
        elif self._sandbox.lost is None:
            self._sandbox.lost = why

    async def _kill(self, number: int) -> None:
        if number == signal.SIGKILL:
            self._killed = True
            self._writer.hurry(HURRY_S)
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
                await self._streams.output.close()
            except EngineError:
                return  # it has ended

    async def _follow_size(self) -> None:
        """The daemon resizes its own end of the terminal; the container's follows."""
        known = None
        while (size := self._ends.size()) is not None:
            if size != known:
                known = size
                with suppress(EngineError, SandboxdError):
                    await self._engine.resize(self._container, *size)
            await anyio.sleep(SIZE_EVERY_S)

    def _say(self, kind: wire.MessageType, payload: bytes) -> None:
        self._send(struct.pack("<BBHI", kind, 0, 0, len(payload)) + payload)

    def _send(self, message: bytes) -> None:
        with suppress(OSError):
            self._channel.send(message)
