"""Read a command's output pipes: collect the output for the result, or stream it to the client.

A streaming client is waited for: a slow one stops the reading of its own command's pipe and of
nothing else. Without one the event loop reads whenever data is there, and no task is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from sandboxd import event_loop
from sandboxd.posix.passed_ends import resize
from sandboxd.supervisor.execution.stdio.ends.current_platform import ends
from sandboxd.supervisor.execution.stdio.output import Stream
from sandboxd.supervisor.execution.stdio.text import TextStream
from sandboxd.supervisor.request import OutputListener
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import Encoding

SHORT_OUTPUT = 64 << 10  # after which other work has its turn
AFTER_END_BYTES = 8 << 20  # of background processes that go on printing
# Output of a shorter command is read once, at its end: watching a pipe costs more than reading it.
READ_AFTER_S = 0.002
# Of a pipe with much output, for fewer turns of the event loop. A user's pipes have a common limit.
LARGE_PIPE_BYTES = 256 << 10


class Pump(Protocol):
    """Reads from its start; `finish` when the command has ended: it does not wait for other holders
    of the pipe."""

    async def finish(self) -> None: ...
    def close(self) -> None: ...


class CollectingPump:
    """For a result only. The descriptor is nonblocking and stays the caller's.

    One read in a callback. Nothing is read while the scan thread works on earlier bytes: a command
    that prints fast waits, and memory stays bounded. `broken` is called with an unexpected
    exception: nothing is read any more, and the command must be ended.
    """

    def __init__(self, stream: Stream, fd: int, broken: Callable[[Exception], None]) -> None:
        self._stream = stream
        self._fd = fd
        self._end = ends.ReadEnd(fd)
        self._broken = broken
        self._open = True
        self._reading = False
        self._scan: event_loop.Task[None] | None = None
        self._timer: event_loop.Timer | None = None

    @staticmethod
    def begin(pumps: Sequence[CollectingPump], first: Callable[[], None]) -> None:
        """One timer for the pumps of a command. `first` is called before they read."""
        timer = event_loop.call_later(READ_AFTER_S, _listen_all, pumps, first)
        for pump in pumps:
            pump._timer = timer

    def _listen(self) -> None:
        if self._open and not self._reading:
            self._reading = True
            self._end.watch(self._read)

    def _pause(self) -> None:
        self._reading = False
        self._end.unwatch()

    def _read(self) -> None:
        try:
            data = self._end.read_now()
            if data:
                scan = event_loop.Begun(self._stream.scan(self._stream.keep(data)))
                if scan.done:
                    scan.result()
                else:
                    self._wait_for(scan)
            elif data is not None:
                self.close()
        except Exception as error:
            self._fail(error)

    def _wait_for(self, scan: event_loop.Begun[list[Denial]]) -> None:
        if self._scan is None:
            resize(self._fd, LARGE_PIPE_BYTES)
        if self._reading:
            self._pause()
        self._scan = event_loop.create_task(self._read_after(scan))

    async def _read_after(self, scan: event_loop.Begun[list[Denial]]) -> None:
        try:
            await scan
        except Exception as error:
            self._fail(error)
        else:
            self._listen()

    def _fail(self, error: Exception) -> None:
        self.close()
        self._broken(error)

    async def finish(self) -> None:
        if self._timer is not None:  # the other pumps finish too
            self._timer.cancel()
        if self._scan is not None:
            await self._scan
        if self._reading:
            self._pause()
        taken = 0
        while self._open and taken < AFTER_END_BYTES:
            data = self._end.read_now()
            if data is None and await self._end.more_is_coming():
                continue
            if not data:
                break
            taken += len(data)
            await self._stream.scan(self._stream.keep(data))
            if taken > SHORT_OUTPUT:
                await anyio.lowlevel.checkpoint()
        self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            if self._reading:
                self._pause()


def _listen_all(pumps: Sequence[CollectingPump], first: Callable[[], None]) -> None:
    first()
    for pump in pumps:
        pump._listen()


class StreamingPump:
    """For a streaming client. Runs as a task of the execution."""

    def __init__(
        self, stream: Stream, fd: int, execution_id: str, listener: OutputListener,
        tasks: TaskGroup, announced: anyio.Event,
    ) -> None:  # fmt: skip
        self._stream = stream
        self._end = ends.ReadEnd(fd)
        self._id = execution_id
        self._listener = listener
        self._text = TextStream()
        self._seq = 0
        self._stop_dry = False
        self._waiting: anyio.CancelScope | None = None
        self._done = anyio.Event()
        self._announced = announced
        self._after_end = 0
        self._scan: event_loop.Begun[list[Denial]] | None = None
        tasks.start_soon(self._pump)

    async def _pump(self) -> None:
        try:
            await self._announced.wait()
            while self._after_end < AFTER_END_BYTES:
                data = self._end.read_now()
                if data is None:
                    if not self._stop_dry:
                        await self._wait()
                    elif not await self._end.more_is_coming():
                        break
                elif not data:
                    break
                else:
                    self._after_end += len(data) if self._stop_dry else 0
                    await self._deliver(data)
                    # A fast writer and a fast reader would starve other tasks.
                    await anyio.lowlevel.checkpoint()
            await self._send(self._text.rest())
            await self._tell_scanned()
        finally:
            self._done.set()

    async def _wait(self) -> None:
        with anyio.CancelScope() as self._waiting:
            await self._end.readable()
        self._waiting = None

    async def _deliver(self, data: bytes) -> None:
        """While the scan thread works on one piece, the next one is read and sent, and no more."""
        kept = self._stream.keep(data)
        await self._send(self._text.piece(kept) if kept else None)
        await self._tell_scanned()
        self._scan = event_loop.Begun(self._stream.scan(kept))
        if self._scan.done:
            await self._tell_scanned()

    async def _tell_scanned(self) -> None:
        scan, self._scan = self._scan, None
        for denial in await scan if scan is not None else ():
            await self._listener.denial(self._id, denial)

    async def _send(self, piece: tuple[str, Encoding] | None) -> None:
        if piece is not None:
            seq, self._seq = self._seq, self._seq + 1
            await self._listener.output(self._id, self._stream.name, seq, *piece)

    async def finish(self) -> None:
        self._stop_dry = True
        if self._waiting is not None:
            self._waiting.cancel()
        await self._done.wait()

    def close(self) -> None:
        """Its task ends with the execution's task group."""
