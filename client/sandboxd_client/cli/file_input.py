"""A file as the command's stdin: through a pipe of ours, and what is not read is given back.

The daemon takes from a pipe what the command reads, and leaves the rest in it. So a loop that reads
its lines from the same file (`while read line; do sandboxctl run …; done < list`) goes on with the
next line. The file itself is not passed on: a command could change its offset and flags.
"""

from __future__ import annotations

import os
import sys

assert sys.platform != "win32"

_PIECE = 64 * 1024


class FileInput:
    def __init__(self, source: int = 0) -> None:
        self._source = source
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._held = b""
        self._ended = False

    @property
    def waiting_for(self) -> int | None:
        """The descriptor that must become writable next; None at the end of the file."""
        return None if self._ended else self._write_end

    def feed(self) -> None:
        """One piece, after poll() said that there is room."""
        if not self._held:
            try:
                self._held = os.read(self._source, _PIECE)
            except OSError:
                self._held = b""
        if not self._held:
            self._end()
            return
        try:
            self._held = self._held[os.write(self._write_end, self._held) :]
        except BlockingIOError:
            return

    def close(self) -> None:
        """What the command has not read is the next reader's."""
        self._end()
        if self.read_end < 0:
            return
        rest = len(self._held) + unread(self.read_end)
        os.close(self.read_end)
        self.read_end, self._held = -1, b""
        if rest:
            os.lseek(self._source, -rest, os.SEEK_CUR)

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            os.close(self._write_end)


def unread(pipe: int) -> int:
    """How many bytes it holds."""
    from fcntl import ioctl
    from termios import FIONREAD

    return int.from_bytes(ioctl(pipe, FIONREAD, b"\0" * 4), sys.byteorder)
