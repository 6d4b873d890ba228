"""Write the command's output to our stdout and stderr, in order, without blocking the loop.

What goes to a stdout that was closed is lost, and the command goes on: its exit code is its own.

One queue for both, because both may be the same file. A pipe takes a piece of up to PIPE_BUF
bytes without blocking once poll() calls it writable; the descriptor itself is left as it is,
since its open file is shared with other programs.
"""

from __future__ import annotations

import os
import sys

assert sys.platform != "win32"


_EBADF = 9
_PIECE = 4096
_FILE_PIECE = 1 << 20
_FIFO, _REGULAR, _KIND = 0o010000, 0o100000, 0o170000


class TerminalOutput:
    """`pending_bytes` bounds the memory: above a limit the loop stops reading the socket."""

    def __init__(self) -> None:
        self.pending_bytes = 0
        self._queue: list[tuple[int, memoryview]] = []
        self._first = 0
        self._pieces = {fd: _piece(fd) for fd in (1, 2)}
        self._in_line = False
        self.is_lost = False  # whether the command printed to a stdout that was closed

    @property
    def waiting_for(self) -> int | None:
        """The descriptor that must become writable next."""
        return self._queue[self._first][0] if self._first < len(self._queue) else None

    def add(self, fd: int, data: bytes) -> None:
        if self._pieces[fd] and data:
            self._queue.append((fd, memoryview(data)))
            self.pending_bytes += len(data)
            self._in_line = not data.endswith(b"\n")

    def add_line(self, line: str) -> None:
        """One of ours, to stderr, after the output that came before it; below a prompt or another
        unfinished line where a terminal shows both."""
        from sandboxd_client.cli.screen import for_stderr

        data = for_stderr(line)
        self.add(2, b"\r\n" + data if self._in_line and os.isatty(2) else data)

    def write(self) -> None:
        """One piece, after poll() said that there is room. BrokenPipeError: the reader is gone."""
        fd, data = self._queue[self._first]
        try:
            written = os.write(fd, data[: self._pieces[fd]])
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != _EBADF:
                raise
            self.is_lost, written = True, len(data)
        self.pending_bytes -= written
        if written < len(data):
            self._queue[self._first] = (fd, data[written:])
            return
        self._first += 1
        if self._first == len(self._queue):
            self._queue, self._first = [], 0


def _piece(fd: int) -> int:
    """How much may be written at once; 0: the descriptor is closed, what goes there is dropped."""
    try:
        kind = os.fstat(fd).st_mode & _KIND
    except OSError:
        return 0
    return _FILE_PIECE if kind == _REGULAR else _PIECE
