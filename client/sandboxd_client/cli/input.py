"""Forward our stdin to the command, reading no more than the daemon takes.

One piece is in flight at a time, and the next is read when the daemon has taken it. So memory is
bounded, and input that a command does not read is left for other readers of our stdin.
"""

from __future__ import annotations

import os
import sys

assert sys.platform != "win32"

PIECE = 64 * 1024
RETRY_S = 0.2


class Input:
    """`raw`: the terminal is ours alone (a pty is shown in it), so every key is for the command."""

    def __init__(self, fd: int = 0, *, raw: bool = False) -> None:
        self.fd = fd
        self.ended = False
        self.in_flight = False
        self._raw = raw
        self._is_terminal = os.isatty(fd)
        self._somebody_elses = False

    @property
    def wanted(self) -> bool:
        """Whether poll() should look at the descriptor now."""
        if self.ended or self.in_flight or self._somebody_elses:
            return False
        # Reading a terminal from the background would stop us with SIGTTIN.
        return not self._is_in_background()

    @property
    def retry_s(self) -> float | None:
        """When to look again at a terminal that a pager or another job holds at the moment."""
        return RETRY_S if self._somebody_elses or self._is_in_background() else None

    def _is_in_background(self) -> bool:
        if self.ended or not self._is_terminal:
            return False
        from sandboxd_client.cli.raw_mode import foreground

        return not foreground(self.fd)

    def look_again(self) -> None:
        self._somebody_elses = False

    def read(self) -> bytes | None:
        """The next piece; b"" is the end; None: another program reads the terminal."""
        if self._is_terminal and not self._raw:
            from sandboxd_client.cli.raw_mode import line_mode

            if not line_mode(self.fd):
                self._somebody_elses = True
                return None
        try:
            data = os.read(self.fd, PIECE)
        except BlockingIOError:
            return None
        except OSError:
            data = b""  # the terminal hung up
        self.ended = not data
        return data
