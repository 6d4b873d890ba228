"""A command's output: counted, limited, scanned for denials, and kept for the result.

Memory stays bounded: capture keeps the head or the tail of each stream and goes on draining.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import anyio.to_thread
import msgspec

from sandboxd.supervisor.execution.stdio.ends.current_platform import ends
from sandboxd.supervisor.execution.stdio.text import encode, incomplete_head, incomplete_tail
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import Captured, StreamName

CAPTURE_LIMIT = 8 * 1024 * 1024
LARGE_CAPTURE = 256 * 1024


class Scan(Protocol):
    """Finds denials in output. Waits only where a thread does the work."""

    async def feed(self, stream: StreamName, data: bytes) -> list[Denial]: ...


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

    def spend(self, count: int) -> None:
        """Bytes that passed elsewhere; at most `left`."""
        if self.left is not None:
            self.left -= count


def _nothing() -> None:
    pass


class Capture(NamedTuple):
    """How many bytes of a stream are kept for the result, and which: its head, its tail or both."""

    bytes: int
    keep: Literal["head", "tail", "both"] = "head"


WHOLE_HEAD = Capture(CAPTURE_LIMIT)


class CaptureBuffer:
    """The kept part of a stream, at bounded memory whatever comes."""

    def __init__(self, capture: Capture) -> None:
        tail = {"head": 0, "tail": capture.bytes, "both": capture.bytes // 2}[capture.keep]
        self._head_room, self._tail_room = capture.bytes - tail, tail
        self._head, self._tail = bytearray(), bytearray()
        self.lost = False

    def take(self, data: bytes) -> None:
        room = self._head_room - len(self._head)
        self._head += data[:room]
        rest = data[room:] if room > 0 else data
        if not rest:
            return
        self._tail += rest[-self._tail_room :] if self._tail_room else b""
        if len(self._tail) > 2 * self._tail_room + ends.READ_SIZE:
            self._trim()
        if not self._tail_room or len(rest) > self._tail_room:
            self.lost = True

    def _trim(self) -> None:
        excess = len(self._tail) - self._tail_room
        if excess > 0:
            self.lost = True
            del self._tail[:excess]

    def parts(self) -> tuple[bytes, bytes]:
        self._trim()
        return bytes(self._head), bytes(self._tail)


class Stream:
    """One of a command's two streams: counted, limited, scanned, kept. Never waits."""

    def __init__(
        self, name: StreamName, budget: OutputBudget, scan: Scan, *, capture: Capture | None,
        scan_as: StreamName | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._scan_as = scan_as or name
        self._budget = budget
        self._scan = scan
        self._wanted = capture
        self._capture: CaptureBuffer | None = None  # made for the first byte
        self.bytes = 0
        self._truncated = False

    def keep(self, data: bytes) -> bytes:
        """What of `data` is within the limits."""
        kept = self._budget.take(data)
        if len(kept) < len(data):
            self._truncated = True
        if not kept:
            return b""
        self.bytes += len(kept)
        if self._wanted is not None:
            if self._capture is None:
                self._capture = CaptureBuffer(self._wanted)
            self._capture.take(kept)
        return kept

    async def scan(self, kept: bytes) -> list[Denial]:
        """The denials that it shows; at once if there is little to look at."""
        return await self._scan.feed(self._scan_as, kept) if kept else []

    async def captured(self) -> Captured:
        """Text of a large stream is made in a thread."""
        if self._capture is None:
            return Captured(bytes=self.bytes, truncated=self._truncated)
        if self.bytes < LARGE_CAPTURE:
            return self._captured()
        return await anyio.to_thread.run_sync(self._captured)

    def _captured(self) -> Captured:
        head, tail = self._capture.parts() if self._capture is not None else (b"", b"")
        lost = self._capture is not None and self._capture.lost
        if self._truncated or lost:
            # The cut is ours: do not turn text into base64 for half a character.
            head = head[: len(head) - incomplete_tail(head)]
        if lost:
            tail = tail[incomplete_head(tail) :]
        data, encoding = encode(head + tail)
        gap: int | msgspec.UnsetType = msgspec.UNSET
        if lost and head and tail:
            gap = len(head.decode()) if encoding == "utf-8" else len(head)
        return Captured(
            data=data, encoding=encoding, bytes=self.bytes, truncated=self._truncated or lost,
            gap_at=gap,
        )  # fmt: skip
