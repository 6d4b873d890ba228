"""Who a terminal's stop key (Ctrl-Z) is for, by the descriptor of its master."""

from __future__ import annotations

import os
import sys

_TIOCGSID = 0x5429  # termios does not name it
_SIGTSTP = 20


def has_own_jobs(terminal: int) -> bool:
    """Whether the command of the terminal stops and continues jobs of its own: one of them is in
    the foreground, or the command takes no notice of the key, as shells do at their prompt."""
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        leader = int.from_bytes(fcntl.ioctl(terminal, _TIOCGSID, bytes(4)), sys.byteorder)
        return os.tcgetpgrp(terminal) != leader or _ignores(leader, _SIGTSTP)
    except OSError:
        return False


def _ignores(pid: int, signal: int) -> bool:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        ignored = next((line.split()[1] for line in status if line.startswith("SigIgn:")), "0")
    return bool(int(ignored, 16) >> (signal - 1) & 1)
