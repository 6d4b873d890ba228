"""Relay bytes between two connections, in both directions, with bounded memory.

Each side reads again only after its last bytes were sent, so a slow reader slows its sender. A
stream with much data is spliced: the kernel moves its pages without copying them to this process.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import anyio.lowlevel

from sandboxd.egress.sniffing.first_line import LineGuard
from sandboxd.egress.sockets import receive, send_all

SPLICE_AFTER = 256 * 1024
_SPLICES = sys.platform == "linux"
PIPE_BYTES = 1 << 19
_F_SETPIPE_SZ = 1031
_FLAGS = getattr(os, "SPLICE_F_MOVE", 1) | getattr(os, "SPLICE_F_NONBLOCK", 2)

Count = Callable[[int], None]
Half = Callable[[], Awaitable[None]]


class Activity:
    """When bytes were last transferred on a connection."""

    __slots__ = ("at", "began")

    def __init__(self) -> None:
        self.began = self.at = time.monotonic()

    def note_progress(self) -> None:
        self.at = time.monotonic()


async def pump(
    source: socket.socket, target: socket.socket, count: Count, activity: Activity,
    guard: LineGuard | None = None,
) -> None:  # fmt: skip
    """Relay until `source` ends, then half-close `target`. OSError if either fails.

    RequestInStream if `guard` finds a request in the bytes.
    """
    moved = 0
    while not _SPLICES or moved < SPLICE_AFTER or (guard is not None and not guard.passed):
        data = await receive(source)
        if not data:
            finish(target)
            return
        if guard is not None:
            guard.feed(data)
        count(len(data))
        activity.note_progress()
        await send_all(target, data)
        moved += len(data)
    if sys.platform == "linux":
        await _splice(source, target, count, activity)
    finish(target)


def finish(target: socket.socket) -> None:
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if sys.platform == "linux":

    async def _splice(
        source: socket.socket, target: socket.socket, count: Count, activity: Activity
    ) -> None:
        read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with suppress(OSError):  # a user has a limit for large pipes; the default works too
                import fcntl

                fcntl.fcntl(write_end, _F_SETPIPE_SZ, PIPE_BYTES)
            while (size := await _splice_some(source, write_end)) != 0:
                if size is None:
                    data = await receive(source)
                    size = len(data)
                    await send_all(target, data)
                else:
                    await _drain(read_end, target, size)
                count(size)
                activity.note_progress()
                # A fast stream never blocks: yield to other tasks.
                await anyio.lowlevel.checkpoint()
        finally:
            os.close(read_end)
            os.close(write_end)

    async def _splice_some(source: socket.socket, pipe: int) -> int | None:
        """How many bytes; None where a readable socket yields none.

        splice(2) stops before urgent data and does not go past it.
        """
        for _ in range(2):
            try:
                return os.splice(source.fileno(), pipe, PIPE_BYTES, flags=_FLAGS)
            except BlockingIOError:
                await anyio.wait_readable(source)
        return None

    async def _drain(read_end: int, target: socket.socket, size: int) -> None:
        while size:
            try:
                moved = os.splice(read_end, target.fileno(), size, flags=_FLAGS)
            except BlockingIOError:
                await anyio.wait_writable(target)
                continue
            if moved == 0:
                raise OSError(errno.EPIPE, "nothing could be sent on")
            size -= moved


class HalfEnded(Exception):
    """Raised by one half of a connection to end the other half."""


async def both(first: Half, second: Half) -> None:
    """Run both halves. An exception of one cancels the other and is raised unchanged."""
    failures: list[Exception] = []

    async def run(half: Half) -> None:
        try:
            await half()
        except HalfEnded:
            tasks.cancel_scope.cancel()
        except Exception as error:
            failures.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, first)
        tasks.start_soon(run, second)
    if failures:
        raise failures[0]
