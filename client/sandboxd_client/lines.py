"""Split the received bytes into lines: the client always uses one message a line.

proto's FrameDecoder handles both framings; a client chooses its own, so it needs only this module,
which imports nothing and copies little.
"""

from __future__ import annotations

# A captured result holds two streams of 8 MiB, and JSON may need six characters for one byte.
LINE_LIMIT = 128 * 1024 * 1024


class LineTooLong(ValueError):
    """The server sent more than `LINE_LIMIT` bytes without a line end."""


class LineBuffer:
    """Takes received bytes; returns the lines that are complete."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        head, newline, rest = data.partition(b"\n")
        if not newline:
            self._keep(data)
            return []
        first = b"".join([*self._parts, head])
        self._parts, self._size = [], 0
        *lines, tail = rest.split(b"\n")
        self._keep(tail)
        return [line for line in (first, *lines) if line]

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size > self._limit:
            raise LineTooLong(f"a message of the daemon is longer than {self._limit} bytes")
