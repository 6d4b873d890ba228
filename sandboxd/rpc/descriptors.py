"""Descriptors that came with a connection's bytes, until the frame that they belong to is read.

A client sends them with its frame's first byte. The kernel never joins two sends of which the first
carries descriptors, but it may join earlier plain bytes with them; so a frame owns those of the
chunk that its first byte lies in.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass

MAX_PENDING = 64


@dataclass(frozen=True, slots=True)
class _Batch:
    end: int
    fds: tuple[int, ...]


class PendingDescriptors:
    def __init__(self) -> None:
        self._batches: deque[_Batch] = deque()
        self._count = 0

    def add(self, end: int, fds: list[int]) -> None:
        """`end`: the stream position after the chunk that they came with."""
        if not fds:
            return
        if self._count + len(fds) > MAX_PENDING:
            _close(fds)
            return
        self._count += len(fds)
        self._batches.append(_Batch(end, tuple(fds)))

    def take(self, offset: int) -> tuple[int, ...]:
        """For the frame that starts at `offset`; what belonged to earlier frames is closed."""
        while self._batches and self._batches[0].end <= offset:
            self._drop()
        if not self._batches:
            return ()
        batch = self._batches.popleft()
        self._count -= len(batch.fds)
        return batch.fds

    def _drop(self) -> None:
        batch = self._batches.popleft()
        self._count -= len(batch.fds)
        _close(batch.fds)

    def close(self) -> None:
        while self._batches:
            self._drop()


def _close(fds: list[int] | tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)
