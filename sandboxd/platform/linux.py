"""What the daemon needs of Linux: as on every POSIX system, and hardened by the kernel."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from sandboxd.platform.posix.system import *  # noqa: F403 - all of it is part of this module
from sandboxd.platform.posix.system import restrict_process

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38


def caches_root(home: str) -> str:
    """The workspaces' private caches. Root serves other owners too, who cannot enter /root."""
    if os.getuid() == 0:
        root = "/var/cache/sandboxd"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
        root = os.path.join(cache, "sandboxd")
    with suppress(OSError):
        os.makedirs(root, mode=0o711 if os.getuid() == 0 else 0o700, exist_ok=True)
    return root


def harden() -> None:
    """Not dumpable (no other process reads its memory or descriptors), no new privileges."""
    restrict_process()
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_NO_NEW_PRIVS, 1)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
