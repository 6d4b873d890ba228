"""The real host behind a `HostView`: the only part of the classifier that looks at the machine."""

from __future__ import annotations

import os
import stat
from functools import partial

from sandboxd.denials.facts import HostView
from sandboxd.policy.plan import Access, RunAs

_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp


def host_view(run_as: RunAs | None = None) -> HostView:
    """For commands that run as the daemon's own user, or as the one that it drops to."""
    return HostView(
        exists=_exists,
        is_dir=os.path.isdir,
        permits=partial(_permits, run_as),
        canonical=_canonical,
        pid_exists=_pid_exists,
        listens=_listens,
    )


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:
        return False


def _canonical(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def _pid_exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}/stat")


def _permits(run_as: RunAs | None, path: str, access: Access) -> bool:
    """Permission bits of the path, or of the nearest folder that exists when it is to be made."""
    if access == "write":
        while path != "/" and not _exists(path):
            path = os.path.dirname(path)
    try:
        if run_as is None:
            return os.access(path, os.W_OK if access == "write" else os.R_OK)
        return _bits(os.stat(path), run_as, access)
    except (OSError, ValueError):
        return False


def _bits(status: os.stat_result, who: RunAs, access: Access) -> bool:
    read, write = (stat.S_IRUSR, stat.S_IWUSR)
    wanted = write if access == "write" else read
    if status.st_uid == who.uid:
        return bool(status.st_mode & wanted)
    if status.st_gid == who.gid:
        return bool(status.st_mode & wanted >> 3)
    return bool(status.st_mode & wanted >> 6)


def _listens(port: int) -> bool:
    suffix = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        if any(row[1].endswith(suffix) and row[3] == _LISTEN for row in rows if len(row) > 3):
            return True
    return False
