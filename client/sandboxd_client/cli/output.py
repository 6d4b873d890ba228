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
_LINE_MAX = 1024
_ERASE = b"\r\x1b[K"
_FIFO, _REGULAR, _KIND = 0o010000, 0o100000, 0o170000


class TerminalOutput:
    """`pending_bytes` bounds the memory: above a limit the loop stops reading the socket."""

    def __init__(self) -> None:
        self.pending_bytes = 0
        self._queue: list[tuple[int, memoryview]] = []
        self._first = 0
        self._pieces = {fd: _piece(fd) for fd in (1, 2)}
        self._line = b""  # the unfinished one, as far as _LINE_MAX and a bit
        self._is_repeated = False  # whether it was printed once more, and nothing since
        self.is_lost = False  # whether the command printed to a stdout that was closed

    @property
    def waiting_for(self) -> int | None:
        """The descriptor that must become writable next."""
        return self._queue[self._first][0] if self._first < len(self._queue) else None

    def add(self, fd: int, data: bytes) -> None:
        if self._pieces[fd] and data:
            self._queue.append((fd, memoryview(data)))
            self.pending_bytes += len(data)
            self._is_repeated = False
            end = data.rfind(b"\n") + 1
            line = data[end : end + _LINE_MAX + 1]
            self._line = line if end else (self._line + line)[: _LINE_MAX + 1]

    def add_line(self, line: str) -> None:
        """One of ours, to stderr, after the output that came before it; below a prompt or another
        unfinished line where a terminal shows both, which then follows again."""
        from sandboxd_client.cli.screen import for_stderr

        data, unfinished = for_stderr(line), self._line
        if not unfinished or not os.isatty(2):
            self.add(2, data)
            return
        self.add(2, (_ERASE if self._is_repeated else b"\r\n") + data)
        if len(unfinished) <= _LINE_MAX and os.isatty(1):
            self.add(2, unfinished)
            self._is_repeated = True

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
