"""From a command's pipes to where its output is wanted, in one of two ways.

A streaming client is waited for: a slow one stops the reading of its own command's pipe and of
nothing else. Without one nobody is waited for, so the event loop reads whenever there is something
and no task is needed.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from sandboxd.supervisor.output import Stream, read_now
from sandboxd.supervisor.request import Listener
from sandboxd.supervisor.text import TextStream
from sandboxd_proto.messages.execute import Encoding

AFTER_END_BYTES = 8 << 20  # of background processes that go on printing


class Pump(Protocol):
    """Reads from its start; `finish` when the command has ended: whoever still holds the pipe is
    not waited for."""

    async def finish(self) -> None: ...
    def close(self) -> None: ...


class CollectingPump:
    """For a result only. The descriptor is nonblocking and stays the caller's."""

    def __init__(self, stream: Stream, fd: int) -> None:
        self._stream = stream
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._loop.add_reader(fd, self._read)

    def _read(self) -> None:
        data = read_now(self._fd)
        if data:
            self._stream.keep(data)
        elif data is not None:
            self.close()

    async def finish(self) -> None:
        taken = 0
        while self._open and taken < AFTER_END_BYTES:
            data = read_now(self._fd)
            if not data:
                break
            taken += len(data)
            self._stream.keep(data)
        self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._fd)


class StreamingPump:
    """For a client that is told as it happens. Runs as a task of the execution."""

    def __init__(
        self, stream: Stream, fd: int, execution_id: str, listener: Listener, tasks: TaskGroup,
        announced: anyio.Event,
    ) -> None:  # fmt: skip
        self._stream = stream
        self._fd = fd
        self._id = execution_id
        self._listener = listener
        self._text = TextStream()
        self._seq = 0
        self._stop_dry = False
        self._waiting: anyio.CancelScope | None = None
        self._done = anyio.Event()
        self._announced = announced
        self._after_end = 0
        tasks.start_soon(self._pump)

    async def _pump(self) -> None:
        try:
            await self._announced.wait()
            while self._after_end < AFTER_END_BYTES:
                data = read_now(self._fd)
                if data is None:
                    if self._stop_dry:
                        break
                    await self._wait()
                elif not data:
                    break
                else:
                    self._after_end += len(data) if self._stop_dry else 0
                    await self._deliver(data)
                    # A fast writer and a fast reader would leave no turn for anybody else.
                    await anyio.lowlevel.checkpoint()
            await self._send(self._text.rest())
        finally:
            self._done.set()

    async def _wait(self) -> None:
        with anyio.CancelScope() as self._waiting:
            await anyio.wait_readable(self._fd)
        self._waiting = None

    async def _deliver(self, data: bytes) -> None:
        kept, denials = self._stream.keep(data)
        await self._send(self._text.piece(kept) if kept else None)
        for denial in denials:
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
