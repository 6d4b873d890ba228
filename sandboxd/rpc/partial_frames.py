"""Limit the memory that all connections together use for incomplete frames.

One frame may be large, and connections are many: without a common bound a client could fill the
memory with frames that it never completes. Above the bound a connection that holds more than a
small frame is ended; small requests are always accepted.
"""

from __future__ import annotations

from collections.abc import Hashable

MOST_BYTES = 256 << 20
SMALL_BYTES = 64 << 10


class PartialFrames:
    def __init__(self) -> None:
        self._held: dict[Hashable, int] = {}
        self._total = 0

    def hold(self, connection: Hashable, size: int) -> bool:
        """A connection holds `size` bytes from now on. False if these are too many."""
        self._total += size - self._held.pop(connection, 0)
        if size:
            self._held[connection] = size
        return size <= SMALL_BYTES or self._total <= MOST_BYTES
