"""The daemon hardens itself before it opens anything: it is the most attractive target here."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38


def harden() -> None:
    """Not dumpable (nobody reads its memory or descriptors), no core, no new privileges."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _raise_descriptor_limit()
    # Inherited as ignored (a shell's `trap "" CHLD`), nobody could be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        for option, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_NO_NEW_PRIVS, 1)):
            if libc.prctl(option, value, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _raise_descriptor_limit() -> None:
    """Thousands of connections and hundreds of sandboxes need more than the usual 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 1 << 20
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
