"""The daemon's side of the attach bridge: connects the engine's stream to an InitProcess.

An attach stream that is not read blocks the engine's kill and inspect of that container. So the
stream is read to its end even if the reader is gone, and every call at the end has a time limit.
"""

from __future__ import annotations

import logging
import signal
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from sandboxd.backends.docker.attach.framing import FramedMessage, Unframer
from sandboxd.backends.docker.engine import Engine, EngineError
from sandboxd.backends.local_io import STDERR, LocalEnds, Writer, read_some
from sandboxd.linux.init_client import codec, seqpacket
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.session import InitSandbox
from sandboxd.types import Command, Stdio
from sandboxd_proto.errors import SandboxdError

if TYPE_CHECKING:
    from aiodocker.stream import Stream

log = logging.getLogger(__name__)
KILL_S = 3.0
DRAIN_S = 10.0  # for an engine that brings nothing more after the end; a busy one takes seconds
EARLY_MAX = 64 << 20
HURRY_S = 0.2  # for a slow reader; a reader that stopped must not delay the kill
SIZE_EVERY_S = 0.1
OOM_LOOKS, OOM_EVERY_S = 10, 0.1
# The markers of attach_bridge.c: the target of the next signal. SIGKILL needs none.
NEXT_TO_MAIN, NEXT_TO_TREE = 63, 62
_NO_USAGE = struct.pack("<QQQ", 0, 0, 0)


class AttachStreams(msgspec.Struct, frozen=True):
    """Attached to a container: its stdin, and its stdout and stderr."""

    given: Stream
    output: Stream


class Bridge:
    """`channel`: the other end of an InitProcess's channel; the reaper's messages go there."""

    def __init__(
        self, engine: Engine, container: str, streams: AttachStreams, word: str,
        channel: socket.socket, sandbox: InitSandbox, command: Command, stdio: Stdio | None,
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
        self._may_be_out_of_memory = command.limits.memory_bytes is not None
        self._pieces = 0  # that the engine brought
        self._drained = anyio.Event()
        self._scope = anyio.CancelScope()

    def run(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._carry)

    def close(self) -> None:
        self._scope.cancel()
        self._ends.close()
        self._channel.close()

    async def _carry(self) -> None:
        """Run the bridge until the command's end. Raises nothing."""
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
                log.exception("a container's streams failed")
                self._sandbox.lost = "the container's streams failed"
        self._ends.close_outputs()
        anyio.notify_closing(self._channel)
        self._channel.close()

    async def _outward(self) -> None:
        """Read the stream to its end, also without a reader."""
        try:
            while (message := await self._streams.output.read_out()) is not None:
                data = message.data
                self._pieces += 1
                if message.stream == self._framed:
                    data, said = self._unframer.feed(data)
                    for one in said:
                        self._heard(one)
                await self._print(message.stream, data)
        except codec.InitProtocolViolation as lie:
            self._sandbox.lost = f"the sandbox's init was tampered with: {lie}"
            await self._kill(signal.SIGKILL)
        except Exception as error:  # aiohttp has several exceptions for the end of a connection
            log.debug("the attached stream ended: %s", error)
        await self._writer.write(self._ends.output(self._framed), self._unframer.rest())
        self._ends.close_outputs()
        self._drained.set()

    async def _print(self, stream: int, data: bytes) -> None:
        """Buffers output until STARTED, which may arrive after much output: the engine does not
        keep the order of the two streams."""
        self._early.append((stream, data))
        if not self._started:
            if sum(len(piece) for _, piece in self._early) > EARLY_MAX:
                raise codec.InitProtocolViolation(
                    "too much output before the command's start was reported"
                )
            return
        early, self._early = self._early, []
        for to, piece in early:
            await self._writer.write(self._ends.output(to), piece)

    def _heard(self, said: FramedMessage) -> None:
        if said.speaker == "control":
            match codec.decode_control(said.message):
                case wire.IsolationLost() as lost:
                    self._sandbox.lost = lost.reason
                case wire.SetupFailed(stage, number, detail):
                    self._sandbox.lost = f"{stage.name.lower()}: {detail or number}"
            return
        match codec.decode_channel(said.message):
            case wire.StartedMessage():
                self._started = True
                master = self._ends.master
                socket.send_fds(self._channel, [said.message], [] if master is None else [master])
            case wire.Gone():
                self._last = said.message  # after the engine's answer
            case heard:
                if isinstance(heard, wire.ExitedMessage):
                    self._exited = True
                    self._may_be_out_of_memory &= heard.signal == signal.SIGKILL
                self._send(said.message)

    async def _inward(self) -> None:
        with suppress(OSError, RuntimeError, AssertionError):  # the stream may end at any time
            while data := await read_some(self._ends.stdin):
                await self._streams.given.write_in(data)
        if self._ends.master is None:
            with suppress(OSError, RuntimeError, AssertionError):
                await self._streams.given.close()

    async def _obey(self) -> None:
        """Requests of the supervisor: a signal, or the end of the command."""
        while data := await seqpacket.receive(self._channel):
            if data[0] == codec.MessageType.SIGNAL:
                number, scope = struct.unpack_from("<II", data, codec.HEADER_BYTES)
                await self._kill(NEXT_TO_TREE if scope == wire.SignalScope.TREE else NEXT_TO_MAIN)
                await self._kill(number)
            elif data[0] == codec.MessageType.KILL:
                await self._kill(signal.SIGKILL)
        await self._kill(signal.SIGKILL)  # the supervisor closed it

    async def _until_end(self) -> None:
        try:
            await self._engine.wait(self._container)
            state = await self._end_state()
        except EngineError as error:
            self._lose(f"the engine ended the container while the command ran: {error.message}")
            return
        except SandboxdError as error:
            self._lose(f"the container was lost with its engine: {error.message}")
            return
        self._ends.close_input()
        await self._drain()
        if state.get("OOMKilled"):
            self._say(codec.MessageType.LIMIT, struct.pack("<I", wire.LimitKind.MEMORY))
        ended = self._killed or bool(state.get("OOMKilled"))
        if not self._exited and ended and self._sandbox.lost is None:
            self._say(codec.MessageType.EXITED, struct.pack("<I", signal.SIGKILL) + _NO_USAGE)
        if self._last is not None:
            self._send(self._last)
        elif ended and self._sandbox.lost is None:
            self._say(codec.MessageType.GONE, _NO_USAGE)

    async def _end_state(self) -> dict[str, Any]:
        """A busy engine records a little later than the end that the memory limit caused it."""
        for _ in range(OOM_LOOKS):
            state: dict[str, Any] = (await self._engine.inspect(self._container))["State"]
            if state.get("OOMKilled") or self._killed or not self._may_be_out_of_memory:
                break
            await anyio.sleep(OOM_EVERY_S)
        return state

    async def _drain(self) -> None:
        """Read the rest of the output, as fast as the reader takes it."""
        while not self._drained.is_set():
            pieces = self._pieces
            with anyio.move_on_after(DRAIN_S):
                await self._drained.wait()
                return
            if pieces == self._pieces and not self._writer.is_waiting:
                self._sandbox.lost = "the engine did not bring the rest of the output"
                return

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
                # Closing the unread stream unblocks the engine.
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

    def _say(self, kind: codec.MessageType, payload: bytes) -> None:
        self._send(struct.pack("<BBHI", kind, 0, 0, len(payload)) + payload)

    def _send(self, message: bytes) -> None:
        with suppress(OSError):
            self._channel.send(message)
