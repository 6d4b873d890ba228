"""A command's output: counted, limited, scanned for denials, and kept for the result.

Memory stays bounded: capture keeps a prefix of each stream and goes on draining.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from sandboxd.supervisor.text import encode, incomplete_tail
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import Captured, StreamName

CAPTURE_LIMIT = 8 * 1024 * 1024
READ_SIZE = 256 * 1024

Scan = Callable[[StreamName, bytes], list[Denial]]


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
    """One of a command's two streams: counted, limited, scanned, kept. Nobody waits here."""

    def __init__(
        self, name: StreamName, budget: OutputBudget, scan: Scan, *, capture: bool
    ) -> None:
        self.name = name
        self._budget = budget
        self._scan = scan
        self._capture = bytearray() if capture else None
        self.bytes = 0
        self._truncated = False

    def keep(self, data: bytes) -> tuple[bytes, list[Denial]]:
        """What of `data` is within the limits, and the denials that it shows."""
        kept = self._budget.take(data)
        if len(kept) < len(data):
            self._truncated = True
        if not kept:
            return b"", []
        self.bytes += len(kept)
        if self._capture is not None:
            room = CAPTURE_LIMIT - len(self._capture)
            self._capture += kept[:room]
            self._truncated = self._truncated or len(kept) > room
        return kept, self._scan(self.name, kept)

    def captured(self) -> Captured:
        kept = bytes(self._capture or b"")
        if self._truncated:
            # The cut is ours: do not turn text into base64 for half a character.
            kept = kept[: len(kept) - incomplete_tail(kept)]
        data, encoding = encode(kept)
        return Captured(
            data=data, encoding=encoding, bytes=self.bytes, truncated=self._truncated
        )


def read_now(fd: int) -> bytes | None:
    """What is there; empty at the end, None when there is nothing yet."""
    try:
        return os.read(fd, READ_SIZE)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:  # a terminal whose other side is closed
            return b""
        raise


async def read_some(fd: int) -> bytes:
    """What is there, waiting for something if need be; empty at the end."""
    while (data := read_now(fd)) is None:
        await anyio.wait_readable(fd)
    return data
