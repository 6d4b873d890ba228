"""What the daemon needs of macOS: as on every POSIX system."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from sandboxd.platform.posix.system import *  # noqa: F403 - all of it is part of this module
from sandboxd.platform.posix.system import restrict_process

_PT_DENY_ATTACH = 31
_OPEN_MAX = 10240  # macOS refuses more


def caches_root(home: str) -> str:
    """The workspaces' private caches."""
    root = os.path.join(home, "Library", "Caches", "sandboxd")
    with suppress(OSError):
        os.makedirs(root, mode=0o711 if os.getuid() == 0 else 0o700, exist_ok=True)
    return root


def harden() -> None:
    """No debugger attaches; no core dump."""
    restrict_process(_OPEN_MAX)
    _refuse_debuggers()


def _refuse_debuggers() -> None:
    """ptrace(PT_DENY_ATTACH): a debugger of the same user cannot attach. It may be forbidden to
    call it, under a debugger for instance; then the daemon ends or goes on without."""
    ctypes.CDLL("/usr/lib/libSystem.B.dylib").ptrace(_PT_DENY_ATTACH, 0, None, 0)
