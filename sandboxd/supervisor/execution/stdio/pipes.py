"""The three streams of a command: pipes of ours, and what a client passed to connect to them."""

from __future__ import annotations

import os

import msgspec

from sandboxd.posix.passed_ends import PIPE_BYTES, resize
from sandboxd.supervisor.execution.stdio.ends.current_platform import ends
from sandboxd.types import Stdio


class Passed(msgspec.Struct, frozen=True):
    """A client's own pipes or sockets. The receiver closes them."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None

    def close(self) -> None:
        for fd in (self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)


NOTHING_PASSED = Passed()


class Pipes:
    """The daemon's ends are nonblocking; the child's ends are closed when it has them.

    Pumps stop reading before their ends are closed.

    A command has pipes of ours only. What the client passed is connected to them (see
    passed_streams.py). Where one passed descriptor serves for stdout and stderr, so does one pipe:
    the order of what is written to it stays.
    """

    def __init__(self, passed: Passed, *, merge: bool = False, empty: bool = False) -> None:
        """`empty`: nothing is ever written to stdin."""
        self._open: set[int] = set()
        self.stdin_write, self.stdout_read, self.stderr_read = -1, -1, -1
        self.passed = passed
        self.merged = merge or _same_file(passed.stdout, passed.stderr)
        try:
            self._make(empty)
            if passed is not NOTHING_PASSED:
                self._take_passed()
        except BaseException:
            self.close()  # the sender closes its own copies
            raise

    def _make(self, empty: bool) -> None:
        held = self._open
        if empty:
            stdin = ends.empty_input()
        else:
            self.stdin_write, stdin = ends.input_pipe()
            held.add(self.stdin_write)
        held.add(stdin)
        self.stdout_read, stdout = ends.output_pipe()
        held |= {self.stdout_read, stdout}
        stderr = stdout
        if not self.merged:
            self.stderr_read, stderr = ends.output_pipe()
            held |= {self.stderr_read, stderr}
        self.child = Stdio(stdin, stdout, stderr)

    def _take_passed(self) -> None:
        passed = self.passed
        for fd, given in ((self.stdout_read, passed.stdout), (self.stderr_read, passed.stderr)):
            if fd >= 0 and given is not None:
                resize(fd, PIPE_BYTES)
        all_given = (passed.stdin, passed.stdout, passed.stderr)
        self._open |= {fd for fd in all_given if fd is not None}

    def give_up(self, fd: int) -> int:
        """Another owner closes it from now on."""
        self._open.discard(fd)
        return fd

    def holds(self, fd: int) -> bool:
        return fd in self._open

    def drop(self, fd: int) -> None:
        self._close(fd)

    def close_child_ends(self) -> None:
        self._close(self.child.stdin, self.child.stdout, self.child.stderr)

    def close(self) -> None:
        self._close(*self._open)

    def _close(self, *fds: int) -> None:
        for fd in fds:
            if fd in self._open:
                self._open.discard(fd)
                try:  # noqa: SIM105 - `suppress` takes longer than the close
                    ends.close(fd)
                except OSError:
                    pass


def _same_file(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return False
    return os.path.samestat(os.fstat(one), os.fstat(other))
