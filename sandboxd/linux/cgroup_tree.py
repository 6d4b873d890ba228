"""Where this process stands in the cgroup v2 tree, and whether the subtree below is its own to use.

systemd gives a unit with Delegate=yes its subtree and says so in an extended attribute; managers of
users do not say it before systemd 254. A user who is alone in a cgroup that can be written to, or
root where there is no systemd, may use it all the same: nobody else would notice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

SYSTEMD = "/run/systemd/system"


@dataclass(frozen=True, slots=True)
class NotDelegated:
    """Why limits are held by the best effort instead."""

    reason: str


def own_cgroup(text: str) -> str | None:
    """From /proc/self/cgroup: the v2 path. Lines of v1 controllers have other numbers than 0."""
    for line in text.splitlines():
        if line.startswith("0::"):
            return line[3:]
    return None


def folder_of(cgroup: str, mountinfo: str) -> str | None:
    """Where a cgroup's folder is, from /proc/self/mountinfo; a mount may show only a part."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] != "cgroup2":
            continue
        root, at = (_unescaped(field) for field in before.split(" ")[3:5])
        if root == "/":
            return at.rstrip("/") + cgroup.rstrip("/")
        if cgroup == root or cgroup.startswith(root + "/"):
            return at.rstrip("/") + cgroup[len(root) :]
    return None


def _unescaped(field: str) -> str:
    return field.encode().decode("unicode_escape") if "\\" in field else field


def find() -> str | NotDelegated:
    """The folder of a subtree that is ours to use."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            cgroup = own_cgroup(file.read())
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            folder = folder_of(cgroup, file.read()) if cgroup is not None else None
    except OSError as error:
        return NotDelegated(f"cannot be read: {error}")
    if folder is None:
        return NotDelegated("there is no cgroup v2 hierarchy here")
    return why_not(folder) or folder


def why_not(folder: str) -> NotDelegated | None:
    if not controllers(folder) & {"memory", "pids"}:
        return NotDelegated(f"{folder} has neither the memory nor the pids controller")
    if not os.access(os.path.join(folder, "cgroup.subtree_control"), os.W_OK):
        return NotDelegated(f"{folder} is not delegated to this user (Delegate=yes in the unit)")
    if _said_by_systemd(folder):
        return None
    if os.getuid() == 0 and os.path.isdir(SYSTEMD):
        return NotDelegated(f"{folder} is systemd's own (set Delegate=yes in the unit)")
    if members(folder) != [os.getpid()]:
        return NotDelegated(f"{folder} holds other processes than this daemon")
    return None


def _said_by_systemd(folder: str) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:
            continue
    return False


def controllers(folder: str) -> set[str]:
    return set(read(folder, "cgroup.controllers").split())


def members(folder: str) -> list[int]:
    return [int(pid) for pid in read(folder, "cgroup.procs").split()]


def read(folder: str, name: str) -> str:
    """Empty where the file is missing: a controller that is off, or an older kernel."""
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def write(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:
        file.write(text)


def counted(text: str) -> dict[str, int]:
    """memory.events, pids.events, cpu.stat: a name and a number on each line."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
