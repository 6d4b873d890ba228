"""The daemon's ends of a relayed command's streams: the caller's pipes, or a local terminal."""

from __future__ import annotations

import os
import tty
from contextlib import suppress

import anyio

from sandboxd.platform.window_size import set_window_size, window_size
from sandboxd.types import PtyRequest, Stdio

READ_SIZE = 64 * 1024
STDERR = 2


class LocalEnds:
    """Copies of the caller's descriptors, which the caller closes; a terminal is a new pair."""

    def __init__(self, stdio: Stdio | None, pty: PtyRequest | None) -> None:
        self.master: int | None = None
        if pty is not None:
            self.master, terminal = os.openpty()
            tty.setraw(terminal)
            set_window_size(terminal, pty.rows, pty.cols)
            os.set_blocking(self.master, False)
            self.stdin = self._out = terminal
            self._err = terminal
        else:
            assert stdio is not None
            self.stdin, self._out, self._err = (
                os.dup(fd) for fd in (stdio.stdin, stdio.stdout, stdio.stderr)
            )
        for fd in {self.stdin, self._out, self._err}:
            os.set_blocking(fd, False)
        self._open = {self.stdin, self._out, self._err}

    def output(self, stream: int) -> int:
        """-1 when it is closed already."""
        fd = self._err if stream == STDERR else self._out
        return fd if fd in self._open else -1

    def size(self) -> tuple[int, int] | None:
        """Rows and columns; None when the terminal is closed."""
        if self.stdin not in self._open:
            return None
        return window_size(self.stdin)

    def close_input(self) -> None:
        """Close the reading end, so that writers get EPIPE. A terminal stays open."""
        if self.master is None:
            self._close(self.stdin)

    def close_outputs(self) -> None:
        """Close the writing end, so that the reader sees the end. A terminal is closed."""
        self._close(self._out, self._err)

    def close_output(self, stream: int) -> None:
        """The same for one of them."""
        self._close(self._err if stream == STDERR else self._out)

    def close(self) -> None:
        self._close(*self._open)
        if self.master is not None:
            self._close_one(self.master)
            self.master = None

    def _close(self, *fds: int) -> None:
        for fd in fds:
            if fd in self._open:
                self._open.discard(fd)
                self._close_one(fd)

    @staticmethod
    def _close_one(fd: int) -> None:
        anyio.notify_closing(fd)
        with suppress(OSError):
            os.close(fd)


async def read_some(fd: int, most: int = READ_SIZE) -> bytes:
    """The available bytes, waiting for some; empty at the end of the stream or when closed."""
    while True:
        try:
            return os.read(fd, most)
        except BlockingIOError:
            try:
                await anyio.wait_readable(fd)
            except anyio.ClosedResourceError:
                return b""
        except OSError:
            return b""


class Writer:
    """Writes as fast as the reader reads. After `hurry` a stalled reader is abandoned."""

    def __init__(self) -> None:
        self._patience_s: float | None = None
        self._waiting: anyio.CancelScope | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the reader has to read before more can be written."""
        return self._waiting is not None

    def hurry(self, patience_s: float) -> None:
        self._patience_s = patience_s
        if self._waiting is not None:
            self._waiting.cancel()  # and wait again, no longer than that

    async def write(self, fd: int, data: bytes) -> bool:
        """Drop output that has no reader; False where there is none any more."""
        view = memoryview(data)
        while view and fd >= 0:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:
                if not await self._room(fd):
                    return True
            except OSError:
                return False
        return True

    async def _room(self, fd: int) -> bool:
        patience_s = self._patience_s
        try:
            with anyio.move_on_after(patience_s) as self._waiting:
                await anyio.wait_writable(fd)
                return True
        except anyio.ClosedResourceError:
            return False
        finally:
            self._waiting = None
        return patience_s != self._patience_s
