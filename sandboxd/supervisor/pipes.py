"""The three streams of a command: pipes of ours, or descriptors that the client passed."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass

from sandboxd.sandbox import Stdio


@dataclass(frozen=True, slots=True)
class Passed:
    """A client's own pipes or sockets. Whoever gets this closes them."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None

    def close(self) -> None:
        for fd in (self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)


class Pipes:
    """The daemon's ends are nonblocking; the child's ends are closed as soon as it has them.

    Pumps stop reading before their ends are closed.

    A stream that the client passed has no end here: its bytes never come by.
    """

    def __init__(self, passed: Passed) -> None:
        self._open: set[int] = set()
        self.stdin_write, self.stdout_read, self.stderr_read = -1, -1, -1
        given = (passed.stdin, passed.stdout, passed.stderr)
        try:
            self._make(given)
        except BaseException:
            self._open -= set(given) - {None}  # whoever passed them closes them
            self.close()
            raise

    def _make(self, given: tuple[int | None, int | None, int | None]) -> None:
        stdin, stdout, stderr = (self._own(fd) for fd in given)
        if stdin is None:
            stdin, self.stdin_write = self._pipe()
        if stdout is None:
            self.stdout_read, stdout = self._pipe()
        if stderr is None:
            self.stderr_read, stderr = self._pipe()
        self.child = Stdio(stdin, stdout, stderr)
        for fd in (self.stdin_write, self.stdout_read, self.stderr_read):
            if fd >= 0 and sys.platform != "win32":
                os.set_blocking(fd, False)

    def _own(self, fd: int | None) -> int | None:
        if fd is not None:
            self._open.add(fd)
        return fd

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe()
        self._open |= {read, write}
        return read, write

    def give_up(self, fd: int) -> int:
        """Somebody else closes it from now on."""
        self._open.discard(fd)
        return fd

    def close_child_ends(self) -> None:
        self._close(self.child.stdin, self.child.stdout, self.child.stderr)

    def close(self) -> None:
        self._close(*self._open)

    def _close(self, *fds: int) -> None:
        for fd in fds:
            if fd in self._open:
                self._open.discard(fd)
                with suppress(OSError):
                    os.close(fd)
