"""Where this machine has file systems mounted: what a bind that is not recursive leaves out."""

from __future__ import annotations

import os
import re

# File systems of the kernel are the container's own, or nobody's.
_NOT_FILES = frozenset(
    {"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs",
     "mqueue", "hugetlbfs", "bpf", "pstore", "configfs", "fusectl", "autofs", "binfmt_misc",
     "efivarfs", "nsfs", "rpc_pipefs"}
)  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


def mount_points() -> tuple[str, ...]:
    """Those that can be reached: one can lie under another, and a container's has gone already."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            listed = parse(file.read())
    except OSError:
        return ()
    return tuple(point for point in listed if os.path.lexists(point))


def parse(mountinfo: str) -> tuple[str, ...]:
    found = set()
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind = after.split(" ", 1)[0]
        if kind not in _NOT_FILES:
            found.add(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4]))
    return tuple(sorted(found))
