"""Descriptors that a client passes with a request (SCM_RIGHTS).

A client sends them with its frame's first byte. The kernel never joins two sends of which the first
carries descriptors, but it may join earlier plain bytes with them; so a frame owns those of the
chunk that its first byte lies in.

`execute` takes pipes and connected Unix streams only: the daemon connects them to the command's own
pipes without waiting for them (passed_streams.py), which a file or a terminal does not allow.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable

import msgspec

from sandboxd.platform.current import system
from sandboxd.posix.descriptors import is_connected_stream
from sandboxd.supervisor.execution.stdio.pipes import Passed
from sandboxd_proto.errors import InvalidParams, PolicyNotSupported
from sandboxd_proto.messages.execute import PassedDescriptors

MAX_PENDING = 64


class _Batch(msgspec.Struct, frozen=True):
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


def check_passed(wanted: PassedDescriptors, received: tuple[int, ...]) -> Passed:
    """Takes ownership of every received descriptor and closes those not used."""
    if not system.PASSES_DESCRIPTORS:
        raise PolicyNotSupported(
            "a named pipe carries no descriptors", field="fds",
            remedy="leave fds out: output comes with the result or as events",
        )  # fmt: skip
    used: dict[str, int] = {}
    try:
        for name in ("stdin", "stdout", "stderr"):
            index = getattr(wanted, name)
            if index is not None:
                used[name] = _take(index, received, f"fds.{name}")
    except BaseException:
        _close(used.values())
        raise
    finally:
        _close(received)
    return Passed(**used)


def _take(index: int, received: tuple[int, ...], field: str) -> int:
    """A copy, so that one descriptor may serve for two streams."""
    if not 0 <= index < len(received):
        raise InvalidParams(
            f"{len(received)} descriptors came with this request, and {field} names number {index}",
            field=field, remedy="send them by SCM_RIGHTS with the frame's first byte",
        )  # fmt: skip
    mode = os.fstat(received[index]).st_mode
    if not (stat.S_ISFIFO(mode) or (stat.S_ISSOCK(mode) and is_connected_stream(received[index]))):
        raise InvalidParams(
            f"{field} is neither a pipe nor a connected Unix stream socket", field=field,
            remedy="pass a pipe and relay it yourself; ask for a pty for a terminal",
        )  # fmt: skip
    return os.dup(received[index])


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
