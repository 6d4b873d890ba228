"""What this host says about namespaces, containers and bwrap itself: facts for a diagnosis."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
_SECCOMP_FILTER = "2"


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A sysctl is None where the kernel does not have it. `filtered`: a filter is around us."""

    apparmor_restricts: bool = False
    max_user_namespaces: int | None = None
    userns_clone: int | None = None
    setuid: bool = False
    root: bool = False
    container: bool = False
    filtered: bool = False

    @classmethod
    def current(cls, bwrap: str | None) -> HostFacts:
        return cls(
            apparmor_restricts=_sysctl("kernel.apparmor_restrict_unprivileged_userns") == 1,
            max_user_namespaces=_sysctl("user.max_user_namespaces"),
            userns_clone=_sysctl("kernel.unprivileged_userns_clone"),
            setuid=bwrap is not None and _is_setuid(bwrap),
            root=os.getuid() == 0,
            container=any(os.path.exists(mark) for mark in _CONTAINER_MARKS),
            filtered=_status("Seccomp") == _SECCOMP_FILTER,
        )


def _sysctl(name: str) -> int | None:
    try:
        with open(os.path.join("/proc/sys", *name.split(".")), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _is_setuid(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_ISUID)
    except OSError:
        return False


def _status(field: str) -> str | None:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            lines = dict(line.split(":", 1) for line in file)
    except (OSError, ValueError):
        return None
    return lines.get(field, "").strip()
