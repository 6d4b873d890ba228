"""Ends of pipes as nonblocking descriptors."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

import anyio

from sandboxd import event_loop
from sandboxd.platform import terminal_jobs
from sandboxd.platform.window_size import set_window_size
from sandboxd.preallocated import Preallocated

assert sys.platform != "win32"

READ_SIZE = 256 * 1024


def _make_input_pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(write, False)
    return write, read


def _make_output_pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    return read, write


def _make_empty_input() -> int:
    read, write = os.pipe()
    os.close(write)
    return read


_input_pipes = Preallocated(_make_input_pipe)
_empty_inputs = Preallocated(_make_empty_input)
_output_pipes = Preallocated(_make_output_pipe, per_command=2)


input_pipe = _input_pipes.take  # (ours to write, the command's to read)
empty_input = _empty_inputs.take  # the command's end of a pipe that has no writer
output_pipe = _output_pipes.take  # (ours to read, the command's to write)


def close(fd: int) -> None:
    os.close(fd)


def duplicate(fd: int) -> int:
    return os.dup(fd)


def terminal_input(master: int) -> int:
    """A descriptor to write to, which the caller closes."""
    return os.dup(master)


def resize_terminal(master: int, rows: int, cols: int) -> None:
    set_window_size(master, rows, cols)


def has_own_jobs(master: int) -> bool:
    """Whether the terminal's stop key is for jobs of the command's own."""
    return terminal_jobs.has_own_jobs(master)


def read_now(fd: int) -> bytes | None:
    """What is there; empty at the end, None when there is nothing yet."""
    try:
        return os.read(fd, READ_SIZE)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:  # a terminal whose other side is closed
            return b""
        raise


class ReadEnd:
    """The descriptor stays the caller's."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read_now(self) -> bytes | None:
        """What is there; empty at the end, None when there is nothing yet."""
        return read_now(self._fd)

    def watch(self, readable: Callable[[], None]) -> None:
        """`readable` is called whenever there is something to read, until `unwatch`."""
        event_loop.add_reader(self._fd, readable)

    def unwatch(self) -> None:
        event_loop.remove_reader(self._fd)

    async def readable(self) -> None:
        await anyio.wait_readable(self._fd)

    async def more_is_coming(self) -> bool:
        """With every writer dead: whether data is on its way that `read_now` does not see yet."""
        return False

    def close(self) -> None:
        """Closes the descriptor; a task that waits in `readable` goes on."""
        anyio.notify_closing(self._fd)
        os.close(self._fd)


class WriteEnd:
    """Owns the descriptor."""

    __slots__ = ("_fd", "_waiting")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = False

    def write_now(self, data: bytes | memoryview) -> int:
        """The number of bytes written. BlockingIOError if the pipe is full; OSError without a
        reader."""
        return os.write(self._fd, data)

    async def writable(self) -> None:
        """OSError or ClosedResourceError when it was closed meanwhile."""
        self._waiting = True
        try:
            await anyio.wait_writable(self._fd)
        finally:
            self._waiting = False

    def close(self) -> None:
        if self._waiting:
            anyio.notify_closing(self._fd)
        os.close(self._fd)
