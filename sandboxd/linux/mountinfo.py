"""Where this machine has file systems mounted, from /proc/self/mountinfo."""

from __future__ import annotations

import os

from sandboxd.platform.mountinfo import MountEntry as MountEntry
from sandboxd.platform.mountinfo import parse as parse
from sandboxd.policy.paths.hanging_mounts import HANGING

# Kernel file systems: a container has its own.
_NOT_FILES = frozenset(
    {"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs",
     "mqueue", "hugetlbfs", "bpf", "pstore", "configfs", "fusectl", "autofs", "binfmt_misc",
     "efivarfs", "nsfs", "rpc_pipefs"}
)  # fmt: skip


def read_mountinfo() -> list[MountEntry]:
    """Of this process. OSError where there is no /proc."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return parse(file.read())


def mount_points() -> tuple[str, ...]:
    """Mount points with files that can be reached: another mount may cover one, or it is
    already gone."""
    try:
        listed = read_mountinfo()
    except OSError:
        return ()
    points = {entry.point for entry in listed if entry.kind not in _NOT_FILES}
    silent = HANGING.points()
    return tuple(sorted(point for point in points if point in silent or os.path.lexists(point)))
