"""The ends of child processes by SIGCHLD: on POSIX systems without pidfds.

Only pids that were given to it are waited for, so that children of others (asyncio's, a helper's)
keep their exit status.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from sandboxd.event_loop import AbstractEventLoop, Future, running_loop

assert sys.platform != "win32"


class ChildExit(msgspec.Struct, frozen=True):
    """A child's exact wait status, and what it and the children that it waited for used."""

    status: int
    usage: resource.struct_rusage


class Reaper:
    """Made by `reaping`, on the event loop's own thread."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[int, Future[ChildExit]] = {}

    def watch(self, pid: int) -> Future[ChildExit]:
        """Done when the child has ended and is reaped. It may have ended already."""
        future: Future[ChildExit] = self._loop.create_future()
        self._waiting[pid] = future
        self._loop.call_soon(self.look)
        return future

    def look(self) -> None:
        for pid in list(self._waiting):
            try:
                found, status, usage = os.wait4(pid, os.WNOHANG)
            except ChildProcessError:
                # It was ours alone to reap: nothing is known about its end.
                found, status, usage = pid, signal.SIGKILL, resource.getrusage(resource.RUSAGE_SELF)
            if found:
                future = self._waiting.pop(pid)
                if not future.done():
                    future.set_result(ChildExit(status, usage))


@asynccontextmanager
async def reaping() -> AsyncIterator[Reaper]:
    loop = running_loop()
    reaper = Reaper(loop)
    loop.add_signal_handler(signal.SIGCHLD, reaper.look)
    try:
        yield reaper
    finally:
        loop.remove_signal_handler(signal.SIGCHLD)
