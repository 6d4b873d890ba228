"""The size of a terminal."""

from __future__ import annotations

import sys


def set_size(master: int, rows: int, cols: int) -> None:
    if sys.platform != "win32":
        import termios

        termios.tcsetwinsize(master, (rows, cols))
