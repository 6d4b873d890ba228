"""The daemon's ends of a remote command: the pipes that its output is written to."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import anyio

from sandboxd.types import Stdio


class OutputPipes:
    """Copies of the caller's ends, which it closes itself. Writes as fast as the reader reads."""

    def __init__(self, stdio: Stdio) -> None:
        self._fds = {"stdout": os.dup(stdio.stdout), "stderr": os.dup(stdio.stderr)}
        for fd in self._fds.values():
            if sys.platform != "win32":
                os.set_blocking(fd, False)
        self._waiting: anyio.CancelScope | None = None
        self._given_up = False

    def give_up(self) -> None:
        """What the reader has not taken is dropped from now on."""
        self._given_up = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def write(self, stream: str, data: bytes) -> None:
        view = memoryview(data)
        while view and stream in self._fds:
            try:
                view = view[os.write(self._fds[stream], view) :]
            except BlockingIOError:
                if self._given_up:
                    return
                with anyio.CancelScope() as self._waiting:
                    await anyio.wait_writable(self._fds[stream])
                self._waiting = None
            except OSError:
                return  # the reader is gone

    def close(self) -> None:
        fds, self._fds = self._fds, {}
        for fd in fds.values():
            anyio.notify_closing(fd)
            with suppress(OSError):
                os.close(fd)
