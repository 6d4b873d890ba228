"""The daemon's half of one command on another machine: its channel and its streams."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from sandboxd.backends.local_io import STDERR, LocalEnds, Writer, read_some
from sandboxd.backends.opensandbox.remote_init.framing import INPUT_CLOSED, WINDOW, Frame, Kind
from sandboxd.backends.opensandbox.remote_init.link import Link
from sandboxd.linux.init_client import codec, seqpacket

HURRY_S = 0.2  # for a slow reader; one that stopped must not delay the kill
SIZE_EVERY_S = 0.1
MOST_WAITING = 4096  # frames
_STARTED = bytes([codec.MessageType.STARTED])
_PIECE = 64 << 10
_STREAMS = {Kind.OUTPUT: (0, 1), Kind.ERRORS: (1, STDERR)}


class StdioRelay:
    """`channel`: the other end of an InitProcess's. Closed by its task, or by `close`."""

    def __init__(self, link: Link, number: int, channel: socket.socket, ends: LocalEnds) -> None:
        self._link = link
        self._number = number
        self._channel = channel
        channel.setblocking(False)
        self._ends = ends
        self._writer = Writer()
        self._arrived: list[Frame] = []
        self._wake = anyio.Event()
        self._on_the_way = [0, 0]  # bytes that came and were not given room for again
        self._printed = [0, 0]  # of these
        self._input_room = WINDOW
        self._input_wake = anyio.Event()
        self._scope = anyio.CancelScope()

    def start(self, tasks: TaskGroup, at_end: Callable[[int], object]) -> None:
        tasks.start_soon(self._carry, at_end)

    def close(self) -> None:
        self._scope.cancel()

    def take(self, frame: Frame) -> None:
        """InitProtocolViolation for more than the bridge was given room for."""
        if frame.kind in _STREAMS:
            stream = _STREAMS[frame.kind][0]
            self._on_the_way[stream] += len(frame.data)
            if self._on_the_way[stream] > WINDOW:
                raise codec.InitProtocolViolation("more output than there is room for")
        if frame.kind is Kind.INPUT:
            self._give_input_room(frame)
            return
        self._arrived.append(frame)
        if len(self._arrived) > MOST_WAITING:
            raise codec.InitProtocolViolation("too many messages")
        self._wake.set()

    def _give_input_room(self, frame: Frame) -> None:
        if len(frame.data) != 4:
            raise codec.InitProtocolViolation("a count that is none")
        (taken,) = struct.unpack("<I", frame.data)
        if taken == INPUT_CLOSED:
            self._ends.close_input()
        else:
            self._input_room = min(WINDOW, self._input_room + taken)
        self._input_wake.set()

    async def _carry(self, at_end: Callable[[int], object]) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._inward)
                    tasks.start_soon(self._obey)
                    if self._ends.master is not None:
                        tasks.start_soon(self._follow_size)
                    await self._outward()
                    tasks.cancel_scope.cancel()
        finally:
            at_end(self._number)
            self._link.send(Kind.CLOSE, self._number)
            self._ends.close()
            anyio.notify_closing(self._channel)
            self._channel.close()

    async def _outward(self) -> None:
        while True:
            while not self._arrived:
                await self._wake.wait()
                self._wake = anyio.Event()
            frame = self._arrived.pop(0)
            if frame.kind is Kind.CLOSE:
                return
            if frame.kind is Kind.CHANNEL:
                await self._tell(frame.data)
            else:
                await self._print(*_STREAMS[frame.kind], frame.data)

    async def _print(self, stream: int, to: int, data: bytes) -> None:
        if not data:
            self._ends.close_output(to)
            return
        fd = self._ends.output(to)
        if not await self._writer.write(fd, data) and fd >= 0:
            self._ends.close_output(to)
            self._link.send(Kind.DISCARD, self._number, struct.pack("<I", stream))
        self._printed[stream] += len(data)
        if self._printed[stream] >= WINDOW // 2:
            room, self._printed[stream] = self._printed[stream], 0
            self._on_the_way[stream] -= room
            self._link.send(Kind.CREDIT, self._number, struct.pack("<II", stream, room))

    async def _tell(self, message: bytes) -> None:
        master = self._ends.master
        fds = [master] if master is not None and message[:1] == _STARTED else []
        while True:
            try:
                socket.send_fds(self._channel, [message], fds)
                return
            except BlockingIOError:
                await anyio.wait_writable(self._channel)
            except OSError:
                return

    async def _inward(self) -> None:
        while data := await read_some(self._ends.stdin, min(self._input_room, _PIECE)):
            self._input_room -= len(data)
            self._link.send(Kind.INPUT, self._number, data)
            while self._input_room <= 0:
                await self._input_wake.wait()
                self._input_wake = anyio.Event()
        if self._ends.master is None:
            self._link.send(Kind.INPUT, self._number)

    async def _obey(self) -> None:
        """Requests of the supervisor: a signal, or the end of the command."""
        while data := await seqpacket.receive(self._channel):
            if data[0] == codec.MessageType.KILL:
                self._writer.hurry(HURRY_S)
            self._link.send(Kind.CHANNEL, self._number, data)
        self._scope.cancel()  # the supervisor closed it

    async def _follow_size(self) -> None:
        known = self._ends.size()
        while (size := self._ends.size()) is not None:
            if size != known:
                known = size
                self._link.send(Kind.SIZE, self._number, struct.pack("<HH", *size))
            await anyio.sleep(SIZE_EVERY_S)
