"""Where this machine has file systems mounted, from /proc/self/mountinfo."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from sandboxd.policy.paths.hanging_mounts import HANGING

# Kernel file systems: a container has its own.
_NOT_FILES = frozenset(
    {"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs",
     "mqueue", "hugetlbfs", "bpf", "pstore", "configfs", "fusectl", "autofs", "binfmt_misc",
     "efivarfs", "nsfs", "rpc_pipefs"}
)  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountEntry:
    """`root`: the part of the file system that is mounted at `point`. `options`: of the file system
    itself."""

    root: str
    point: str
    kind: str
    options: tuple[str, ...]


def read_mountinfo() -> list[MountEntry]:
    """Of this process. OSError where there is no /proc."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return parse(file.read())


def parse(mountinfo: str) -> list[MountEntry]:
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, rest = after.partition(" ")
        root, point = (_unescape(field) for field in before.split(" ")[3:5])
        found.append(MountEntry(root, point, kind, tuple(rest.rpartition(" ")[2].split(","))))
    return found


def _unescape(field: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field) if "\\" in field else field


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
