"""Where a command's output goes: into the result, to the client as it happens, or both.

Memory stays bounded: capture keeps a prefix of each stream and goes on draining, and a client that
reads slowly makes `deliver` wait, which stops the reading of that command's pipe and nothing else.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from sandboxd.supervisor.text import TextStream, encode, incomplete_tail
from sandboxd_proto.messages.execute import Captured, Encoding, StreamName

CAPTURE_LIMIT = 8 * 1024 * 1024
READ_SIZE = 256 * 1024

Deliver = Callable[[StreamName, int, str, Encoding], Awaitable[None]]
Scan = Callable[[StreamName, bytes], Awaitable[None]]


@dataclass(slots=True)
class OutputBudget:
    """`max_output_bytes` over both streams. `exceeded` is called once, when it is used up."""

    left: int | None
    exceeded: Callable[[], None]

    def take(self, data: bytes) -> bytes:
        if self.left is None:
            return data
        kept = data[: self.left]
        over = len(data) > self.left
        self.left -= len(kept)
        if over and self.exceeded is not _nothing:
            tell, self.exceeded = self.exceeded, _nothing
            tell()
        return kept


def _nothing() -> None:
    pass


class Stream:
    """One of a command's two streams, from the pipe to wherever it is wanted."""

    def __init__(
        self, name: StreamName, budget: OutputBudget, *, capture: bool, deliver: Deliver | None,
        scan: Scan | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._budget = budget
        self._capture = bytearray() if capture else None
        self._deliver = deliver
        self._scan = scan
        self._text = TextStream()
        self._seq = 0
        self.bytes = 0
        self._truncated = False
        self._stop_dry = False
        self._waiting: anyio.CancelScope | None = None

    async def pump(self, fd: int) -> None:
        """Read until the end, or until nothing is there after `stop_when_dry`.

        The descriptor is nonblocking and stays the caller's.
        """
        while True:
            try:
                data = os.read(fd, READ_SIZE)
            except BlockingIOError:
                if self._stop_dry:
                    break
                await self._wait(fd)
                continue
            except OSError as error:
                if error.errno == errno.EIO:  # a terminal whose other side is closed
                    break
                raise
            if not data:
                break
            await self.take(data)
        await self._flush()

    async def _wait(self, fd: int) -> None:
        with anyio.CancelScope() as self._waiting:
            await anyio.wait_readable(fd)
        self._waiting = None

    def stop_when_dry(self) -> None:
        """The command has ended; whoever still holds the pipe is not waited for."""
        self._stop_dry = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def take(self, data: bytes) -> None:
        kept = self._budget.take(data)
        if len(kept) < len(data):
            self._truncated = True
        if not kept:
            return
        self.bytes += len(kept)
        if self._scan is not None:
            await self._scan(self.name, kept)
        if self._capture is not None:
            room = CAPTURE_LIMIT - len(self._capture)
            self._capture += kept[:room]
            self._truncated = self._truncated or len(kept) > room
        if self._deliver is not None:
            piece = self._text.piece(kept)
            if piece is not None:
                await self._send(*piece)

    async def _flush(self) -> None:
        if self._deliver is not None:
            piece = self._text.rest()
            if piece is not None:
                await self._send(*piece)

    async def _send(self, data: str, encoding: Encoding) -> None:
        seq, self._seq = self._seq, self._seq + 1
        assert self._deliver is not None
        await self._deliver(self.name, seq, data, encoding)

    def captured(self) -> Captured:
        kept = bytes(self._capture or b"")
        if self._truncated:
            # The cut is ours: do not turn text into base64 for half a character.
            kept = kept[: len(kept) - incomplete_tail(kept)]
        data, encoding = encode(kept)
        return Captured(
            data=data, encoding=encoding, bytes=self.bytes, truncated=self._truncated
        )


async def read_some(fd: int) -> bytes:
    """What is there, waiting for something if need be; empty at the end."""
    while True:
        try:
            return os.read(fd, READ_SIZE)
        except BlockingIOError:
            await anyio.wait_readable(fd)
        except OSError as error:
            if error.errno == errno.EIO:  # a terminal whose other side is closed
                return b""
            raise
