"""The mode of a terminal, and its size."""

from __future__ import annotations

import os
import sys

DEFAULT_SIZE = (24, 80)


def is_raw(fd: int) -> bool:
    """Whether a line feed only moves the cursor down: this program or another one has set the
    terminal to raw mode."""
    if sys.platform == "win32" or not os.isatty(fd):
        return False
    import termios

    try:
        return not termios.tcgetattr(fd)[1] & termios.OPOST
    except termios.error:
        return False


def size() -> tuple[int, int]:
    """Rows and columns of the first standard descriptor that is a terminal."""
    for fd in (1, 0, 2):
        try:
            columns, rows = os.get_terminal_size(fd)
        except OSError:
            continue
        if rows > 0 and columns > 0:
            return rows, columns
    return DEFAULT_SIZE
