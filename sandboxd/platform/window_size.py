"""The size of a terminal, by the descriptor of either end."""

from __future__ import annotations

import sys


def set_window_size(terminal: int, rows: int, cols: int) -> None:
    if sys.platform != "win32":
        import termios

        termios.tcsetwinsize(terminal, (rows, cols))


def window_size(terminal: int) -> tuple[int, int]:
    """Rows and columns."""
    if sys.platform == "win32":
        raise NotImplementedError("terminals have descriptors on POSIX only")
    import termios

    return termios.tcgetwinsize(terminal)
