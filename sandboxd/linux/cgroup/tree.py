"""This process's cgroup in the v2 tree, and whether the daemon may use the subtree below it.

systemd delegates the subtree of a unit with Delegate=yes and marks it with an extended attribute;
user managers set the mark only since systemd 254. A writable cgroup that holds only this process,
and root's where there is no systemd, may be used without the mark: no other program manages it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from sandboxd.linux.mountinfo import MountEntry, read_mountinfo
from sandboxd.policy.paths.within import within

SYSTEMD = "/run/systemd/system"


class CgroupFolder:
    """A cgroup that was made. `entrance`: its cgroup.procs, for a process that enters it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.entrance = -1
        os.mkdir(folder)
        try:
            self._set_limits()
            self.open_entrance()
        except BaseException:
            os.rmdir(folder)
            raise

    def _set_limits(self) -> None:
        raise NotImplementedError

    def open_entrance(self) -> None:
        procs = os.path.join(self.folder, "cgroup.procs")
        self.entrance = os.open(procs, os.O_WRONLY | os.O_CLOEXEC)

    def close_entrance(self) -> None:
        if self.entrance >= 0:
            os.close(self.entrance)
            self.entrance = -1

    def remove(self) -> bool:
        """False while a process is in it."""
        self.close_entrance()
        try:
            os.rmdir(self.folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


class NotDelegated(msgspec.Struct, frozen=True):
    """Why limits are best effort."""

    reason: str


def own_cgroup(text: str) -> str | None:
    """From /proc/self/cgroup: the v2 path. Lines of v1 controllers have other numbers than 0."""
    for line in text.splitlines():
        if line.startswith("0::"):
            return line[3:]
    return None


def folder_of(cgroup: str, mounts: Iterable[MountEntry]) -> str | None:
    """Where a cgroup's folder is; a mount may show only a part."""
    for entry in mounts:
        if entry.kind == "cgroup2" and within(cgroup, entry.root):
            below = cgroup[len(entry.root.rstrip("/")) :].rstrip("/")
            return entry.point.rstrip("/") + below
    return None


def find() -> str | NotDelegated:
    """The folder of a subtree that the daemon may use."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            cgroup = own_cgroup(file.read())
        folder = folder_of(cgroup, read_mountinfo()) if cgroup is not None else None
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
    if said_by_systemd(folder):
        return None
    if os.getuid() == 0 and os.path.isdir(SYSTEMD):
        return NotDelegated(f"{folder} is systemd's own (set Delegate=yes in the unit)")
    if members(folder) != [os.getpid()]:
        return NotDelegated(f"{folder} holds other processes than this daemon")
    return None


def said_by_systemd(folder: str) -> bool:
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
        fd = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        pieces = []
        while piece := os.read(fd, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces).decode("ascii")
    except OSError:
        return ""
    finally:
        os.close(fd)


def write(folder: str, name: str, text: str) -> None:
    fd = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)


def parse_counts(text: str) -> dict[str, int]:
    """memory.events, pids.events, cpu.stat: a name and a number on each line."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
