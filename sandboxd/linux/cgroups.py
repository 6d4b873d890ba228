"""One cgroup for each command, where a subtree is delegated to the daemon: limits that hold.

A fresh cgroup each time: after cgroup.kill some kernels kill what enters it later. The daemon moves
itself into a leaf first, because a cgroup with processes in it cannot give controllers to others.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os

from sandboxd.linux import cgroup_tree
from sandboxd.linux.cgroup_tree import NotDelegated, counted, members, read, write
from sandboxd.policy.plan import Limits
from sandboxd.sandbox import LimitName

log = logging.getLogger(__name__)
LEAF = "supervisor"


class Cgroup:
    """The cgroup of one command. `held` are the limits that it holds."""

    def __init__(self, folder: str, limits: Limits, controllers: frozenset[str]) -> None:
        self._folder = folder
        self._cpu_us = None if limits.cpu_s is None else int(limits.cpu_s * 1e6)
        self.held: frozenset[LimitName] = frozenset()
        os.mkdir(folder)
        try:
            self._limit(limits, controllers)
            procs = os.path.join(folder, "cgroup.procs")
            self.entrance = os.open(procs, os.O_WRONLY | os.O_CLOEXEC)
        except BaseException:
            os.rmdir(folder)
            raise

    def _limit(self, limits: Limits, controllers: frozenset[str]) -> None:
        held: set[LimitName] = set()
        if limits.memory_bytes is not None and "memory" in controllers:
            write(self._folder, "memory.max", str(limits.memory_bytes))
            write(self._folder, "memory.oom.group", "1")
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap accounting
                write(self._folder, "memory.swap.max", "0")
            held.add("memory")
        if limits.processes is not None and "pids" in controllers:
            write(self._folder, "pids.max", str(limits.processes))
            held.add("processes")
        if self._cpu_us is not None:
            held.add("cpu")
        self.held = frozenset(held)

    def exceeded(self) -> LimitName | None:
        """What the kernel counted: the whole tree, and those who have ended too."""
        if "memory" in self.held:
            events = counted(read(self._folder, "memory.events"))
            if events.get("oom_group_kill", events.get("oom_kill", 0)):
                return "memory"
        if "processes" in self.held and counted(read(self._folder, "pids.events")).get("max", 0):
            return "processes"
        if self._cpu_us is not None:
            used = counted(read(self._folder, "cpu.stat")).get("usage_usec", 0)
            return "cpu" if used > self._cpu_us else None
        return None

    def kill(self) -> None:
        """Everything in it at once; nothing where the kernel (before 5.14) cannot."""
        with contextlib.suppress(OSError):
            write(self._folder, "cgroup.kill", "1")

    def close_entrance(self) -> None:
        if self.entrance >= 0:
            os.close(self.entrance)
            self.entrance = -1

    def remove(self) -> bool:
        """False while somebody is in it."""
        self.close_entrance()
        try:
            os.rmdir(self._folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


class Cgroups:
    """The delegated subtree. Made once, by `take`; of use from then on."""

    def __init__(self, folder: str, controllers: frozenset[str]) -> None:
        self._folder = folder
        self.controllers = controllers
        self._numbers = itertools.count(1)
        self._leftover: list[Cgroup] = []

    def make(self, limits: Limits) -> Cgroup | None:
        """None, and a line in the log, when the kernel refuses: the best effort is used then."""
        self._tidy()
        folder = os.path.join(self._folder, f"command-{os.getpid()}-{next(self._numbers)}")
        try:
            return Cgroup(folder, limits, self.controllers)
        except OSError as error:
            log.warning("no cgroup for a command: %s", error)
            return None

    def let_go(self, cgroup: Cgroup) -> None:
        """Kill what is left in it and remove it, now or when it is empty."""
        if cgroup.remove():
            return
        cgroup.kill()
        self._leftover.append(cgroup)

    def close(self) -> None:
        self._tidy()

    def _tidy(self) -> None:
        self._leftover = [cgroup for cgroup in self._leftover if not cgroup.remove()]


def take() -> Cgroups | NotDelegated:
    """The delegated subtree, if there is one. Moves this process into a leaf of it."""
    folder = cgroup_tree.find()
    if isinstance(folder, NotDelegated):
        return folder
    wanted = sorted(cgroup_tree.controllers(folder) & {"memory", "pids"})
    leaf = os.path.join(folder, LEAF)
    try:
        os.makedirs(leaf, exist_ok=True)
        for pid in members(folder):
            write(leaf, "cgroup.procs", str(pid))
        write(folder, "cgroup.subtree_control", " ".join(f"+{name}" for name in wanted))
    except OSError as error:
        return NotDelegated(f"{folder} cannot be used: {os.strerror(error.errno or 0)}")
    return Cgroups(folder, frozenset(wanted))
