"""Which process a journal belongs to, and whether that one still runs."""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import c_uint64

from sandboxd.windows import api
from sandboxd.windows.access_lists.journal import Owner

assert sys.platform == "win32"

_QUERY_LIMITED = 0x1000


def current_owner() -> Owner:
    return Owner(os.getpid(), _created(os.getpid()) or 0)


def is_alive(owner: Owner) -> bool:
    """Pids are used again: the time of creation tells."""
    return _created(owner.pid) == owner.created


def _created(pid: int) -> int | None:
    handle = api.OpenProcess(_QUERY_LIMITED, 0, pid)
    if not handle:
        return None
    try:
        times = [c_uint64() for _ in range(4)]
        if not api.GetProcessTimes(handle, *map(ctypes.byref, times)):
            return None
        return times[0].value
    finally:
        api.close(handle)
