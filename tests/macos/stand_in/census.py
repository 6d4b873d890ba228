"""The census on Linux: members of the UTS namespace that the stand-in noted for a tag.

The kernel uses the number of a namespace again as soon as it is free, also for sandboxes and
containers that have nothing to do with these tests. Those have other mounts than the stand-in.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from sandboxd.macos.census import LivingUsage

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
NOTES_VARIABLE = "SANDBOXD_TEST_STAND_IN"


def notes_folder() -> Path:
    return Path(os.environ[NOTES_VARIABLE])


class NamespaceCensus:
    def __init__(self, notes: Path) -> None:
        self._notes = notes

    def members(self, tag: str, uid: int) -> list[int]:
        with (self._notes / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            try:
                namespace = os.readlink(self._notes / tag)
            except OSError:
                return []
            return [pid for pid in _pids() if _is_in(pid, namespace)]

    def usage(self, pids: Iterable[int]) -> LivingUsage:
        found = [one for pid in pids if (one := _fields(pid)) is not None]
        memory = sum(int(fields[21]) * _PAGE for fields in found)
        # utime, stime, and those of children that were waited for
        cpu = sum(sum(map(int, fields[11:15])) for fields in found) / _TICKS
        return LivingUsage(len(found), memory, cpu)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _is_in(pid: int, namespace: str) -> bool:
    try:
        if os.readlink(f"/proc/{pid}/ns/uts") != namespace:  # none of a zombie
            return False
        return os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
    except OSError:
        return False


def _fields(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third (the state) on."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
