"""The three pipes of a command, and who closes which end when."""

from __future__ import annotations

import os
from contextlib import suppress

import anyio

from sandboxd.sandbox import Stdio


class Pipes:
    """The daemon's ends are nonblocking; the child's ends are closed as soon as it has them."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self.stdin_read, self.stdin_write = self._pipe()
        self.stdout_read, self.stdout_write = self._pipe()
        self.stderr_read, self.stderr_write = self._pipe()
        for fd in (self.stdin_write, self.stdout_read, self.stderr_read):
            os.set_blocking(fd, False)

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe()
        self._open |= {read, write}
        return read, write

    @property
    def child(self) -> Stdio:
        return Stdio(self.stdin_read, self.stdout_write, self.stderr_write)

    def give_up(self, fd: int) -> int:
        """Somebody else closes it from now on."""
        self._open.discard(fd)
        return fd

    def close_child_ends(self) -> None:
        self._close(self.stdin_read, self.stdout_write, self.stderr_write)

    def close(self) -> None:
        self._close(*self._open)

    def _close(self, *fds: int) -> None:
        for fd in fds:
            if fd in self._open:
                self._open.discard(fd)
                anyio.notify_closing(fd)
                with suppress(OSError):
                    os.close(fd)
