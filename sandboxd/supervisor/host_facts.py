"""Facts of this machine that `status` shows."""

from __future__ import annotations

import os
import sys


def landlock_abi() -> int:
    if sys.platform != "linux":
        return 0
    from sandboxd.linux.landlock import kernel_abi

    return kernel_abi()


def cgroup_version() -> int:
    """2: the unified hierarchy is mounted and has controllers; 1: the older one; 0: none."""
    try:
        with open("/sys/fs/cgroup/cgroup.controllers", encoding="ascii") as file:
            if file.read().strip():
                return 2
    except OSError:
        pass
    return 1 if os.path.isdir("/sys/fs/cgroup") and os.listdir("/sys/fs/cgroup") else 0
