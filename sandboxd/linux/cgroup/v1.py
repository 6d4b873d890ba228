"""The pids controller of cgroup v1, for a daemon of root where v2 has no controllers.

It is used only if this process is in the root of the mounted hierarchy: any other cgroup belongs to
the manager that made it (systemd, a container engine, a session manager). The memory controller of
v1 is not used: it ends single processes of a tree, and it is often such a manager's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterable

from sandboxd.linux.cgroup.tree import NotDelegated, read, said_by_systemd
from sandboxd.linux.mountinfo import MountEntry, read_mountinfo
from sandboxd.policy.paths.within import within

CONTROLLER = "pids"
PREFIX = "sandboxd-"


def own_cgroup(text: str, controller: str) -> str | None:
    """From /proc/self/cgroup: the path in the hierarchy of a controller."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number != "0" and controller in names.split(","):
            return path
    return None


def mount_of(mounts: Iterable[MountEntry], controller: str) -> tuple[str, str] | None:
    """(root, mount point) of a controller's hierarchy."""
    for entry in mounts:
        if entry.kind == "cgroup" and controller in entry.options:
            return entry.root, entry.point
    return None


def find(controller: str = CONTROLLER) -> str | NotDelegated:
    """The folder below which the daemon can make cgroups."""
    if os.getuid() != 0:
        return NotDelegated("cgroup v1 is root's")
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            cgroup = own_cgroup(file.read(), controller)
        mount = mount_of(read_mountinfo(), controller)
    except OSError as error:
        return NotDelegated(f"cannot be read: {error}")
    if cgroup is None or mount is None:
        return NotDelegated(f"there is no {controller} controller of cgroup v1")
    return usable(cgroup, *mount, controller)


def why_no_memory() -> str:
    """For people: why memory is counted although there is a cgroup for processes."""
    found = find("memory")
    return found.reason if isinstance(found, NotDelegated) else "memory of cgroup v1 is not used"


def usable(cgroup: str, root: str, at: str, controller: str = CONTROLLER) -> str | NotDelegated:
    below = cgroup[len(root.rstrip("/")) :] if within(cgroup, root) else None
    if below is None or (below.strip("/") and not said_by_systemd(at + below)):
        return NotDelegated(
            f"the {controller} cgroup {cgroup} belongs to the manager of this process"
        )
    folder = (at.rstrip("/") + below).rstrip("/")
    if not os.access(folder, os.W_OK):
        return NotDelegated(f"{folder} cannot be written")
    return folder


def make_base(folder: str) -> str | NotDelegated:
    """A cgroup for all sandboxes of this daemon."""
    _remove_stale(folder)
    base = os.path.join(folder, f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        os.mkdir(base)
    except OSError as error:
        return NotDelegated(f"{folder} cannot be used: {os.strerror(error.errno or 0)}")
    if not read(base, "pids.max"):
        with contextlib.suppress(OSError):
            os.rmdir(base)
        return NotDelegated(f"{folder} has no pids controller")
    return base


def hold(base: str) -> int:
    """A descriptor that shows as long as it is open that the daemon of this base runs: its pid does
    not, in another pid namespace."""
    fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return fd


def _remove_stale(folder: str) -> None:
    """Remove cgroups of killed daemons; a cgroup with a process in it stays. Daemons in another pid
    namespace have no pid here: theirs are locked."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            number = name.removeprefix(PREFIX).partition("-")[0]
            if name.startswith(PREFIX) and number.isdigit() and not _runs(int(number)):
                _remove_unheld(os.path.join(folder, name))


def _remove_unheld(base: str) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(base)
        finally:
            os.close(fd)


def remove_tree(base: str) -> None:
    """Remove a base and the cgroups in it that are empty."""
    with contextlib.suppress(OSError):
        for name in os.listdir(base):
            if os.path.isdir(os.path.join(base, name)):
                remove_tree(os.path.join(base, name))
    with contextlib.suppress(OSError):
        os.rmdir(base)


def _runs(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
