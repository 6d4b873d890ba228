"""Whether a descriptor is a terminal, and the terminal's size."""

from __future__ import annotations

import os

DEFAULT_SIZE = (24, 80)


def is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
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
