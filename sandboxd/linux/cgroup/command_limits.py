"""The cgroup of one command with limits: the kernel enforces them."""

from __future__ import annotations

import contextlib

from sandboxd.linux.cgroup.tree import CgroupFolder, parse_counts, read, write
from sandboxd.policy.plan import Limits
from sandboxd.types import LimitName


class CommandCgroup(CgroupFolder):
    """`held`: the limits that it enforces. The kernel counts threads
    as processes."""

    def __init__(
        self, folder: str, limits: Limits, controllers: frozenset[str], *, v2: bool = True
    ) -> None:
        self._v2 = v2
        self._limits = limits
        self._controllers = controllers
        self._cpu_us = int(limits.cpu_s * 1e6) if v2 and limits.cpu_s is not None else None
        self.held: frozenset[LimitName] = frozenset()
        super().__init__(folder)

    def _set_limits(self) -> None:
        limits, controllers = self._limits, self._controllers
        held: set[LimitName] = set()
        if limits.memory_bytes is not None and "memory" in controllers:
            write(self.folder, "memory.max", str(limits.memory_bytes))
            write(self.folder, "memory.oom.group", "1")
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap accounting
                write(self.folder, "memory.swap.max", "0")
            held.add("memory")
        if limits.process_bound is not None and "pids" in controllers:
            write(self.folder, "pids.max", str(limits.process_bound))
            held.add("processes")
        if self._cpu_us is not None:
            held.add("cpu")
        self.held = frozenset(held)

    def exceeded(self) -> LimitName | None:
        """What the kernel counted: the whole tree, including processes that have ended."""
        if "memory" in self.held:
            events = parse_counts(read(self.folder, "memory.events"))
            if events.get("oom_group_kill", events.get("oom_kill", 0)):
                return "memory"
        forks = parse_counts(read(self.folder, "pids.events")) if "processes" in self.held else {}
        if forks.get("max", 0):
            return "processes"
        if self._cpu_us is not None:
            used = parse_counts(read(self.folder, "cpu.stat")).get("usage_usec", 0)
            return "cpu" if used > self._cpu_us else None
        return None

    def kill(self) -> None:
        """Kill all its processes at once; before kernel 5.14 it does nothing. v1 can only forbid
        forks, so that another kill reaches all processes."""
        with contextlib.suppress(OSError):
            if self._v2:
                write(self.folder, "cgroup.kill", "1")
            else:
                write(self.folder, "pids.max", "0")
