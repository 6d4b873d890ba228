"""Bytes from one connection to the other, in both directions, at bounded memory.

Nothing is read before what was read has been sent on, so a slow reader slows its sender. A stream
that carries much is spliced: the kernel moves its pages, and they never come up here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import anyio.lowlevel

from sandboxd.egress.streams import receive, send_all

SPLICE_AFTER = 256 * 1024
PIPE_BYTES = 1 << 19
_F_SETPIPE_SZ = 1031
_FLAGS = getattr(os, "SPLICE_F_MOVE", 1) | getattr(os, "SPLICE_F_NONBLOCK", 2)

Count = Callable[[int], None]
Half = Callable[[], Awaitable[None]]


class Activity:
    """When something last moved on a connection."""

    __slots__ = ("at", "began")

    def __init__(self) -> None:
        self.began = self.at = time.monotonic()

    def moved(self) -> None:
        self.at = time.monotonic()


async def pump(
    source: socket.socket, target: socket.socket, count: Count, activity: Activity
) -> None:
    """Until `source` ends; then `target` is told so (half-close). OSError when either breaks."""
    moved = 0
    while moved < SPLICE_AFTER:
        data = await receive(source)
        if not data:
            finish(target)
            return
        count(len(data))
        activity.moved()
        await send_all(target, data)
        moved += len(data)
    await _splice(source, target, count, activity)
    finish(target)


def finish(target: socket.socket) -> None:
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


async def _splice(
    source: socket.socket, target: socket.socket, count: Count, activity: Activity
) -> None:
    read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        with suppress(OSError):  # a user has a limit for large pipes; a small one works too
            fcntl.fcntl(write_end, _F_SETPIPE_SZ, PIPE_BYTES)
        while True:
            try:
                size = os.splice(source.fileno(), write_end, PIPE_BYTES, flags=_FLAGS)
            except BlockingIOError:
                await anyio.wait_readable(source)
                continue
            if size == 0:
                return
            count(size)
            activity.moved()
            await _drain(read_end, target, size)
            # A fast stream never blocks, and others want their turn.
            await anyio.lowlevel.checkpoint()
    finally:
        os.close(read_end)
        os.close(write_end)


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


class Ended(Exception):
    """Raised by one half of a connection: the other need not go on either."""


async def both(first: Half, second: Half) -> None:
    """Two halves at once. Whatever breaks one ends the other and is raised as it is."""
    failures: list[Exception] = []

    async def run(half: Half) -> None:
        try:
            await half()
        except Ended:
            tasks.cancel_scope.cancel()
        except Exception as error:
            failures.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, first)
        tasks.start_soon(run, second)
    if failures:
        raise failures[0]
