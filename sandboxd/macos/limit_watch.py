"""Limits of a command's whole tree, by summing over the census a few times a second.

Best effort: the tree can overshoot between two looks. macOS holds nothing firmer: RLIMIT_AS does
nothing there, and RLIMIT_NPROC counts everything that the user runs.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from sandboxd.event_loop import Timer, call_later
from sandboxd.macos.census import LivingUsage
from sandboxd.macos.tree import Tree
from sandboxd.policy.plan import Limits
from sandboxd.types import LimitName

LOOK_EVERY_S = 0.1


class LimitWatch:
    """Looks only where a limit was asked for. `exceeded` is the first limit that did not hold."""

    def __init__(self, tree: Tree, limits: Limits, kill: Callable[[], None]) -> None:
        self._tree = tree
        self._limits = limits
        self._kill = kill
        self._timer: Timer | None = None
        self.exceeded: LimitName | None = None
        self.most = LivingUsage()

    def start(self) -> None:
        limits = self._limits
        if any(x is not None for x in (limits.memory_bytes, limits.cpu_s, limits.processes)):
            self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._tree.census.usage(self._tree.members())
        most = self.most
        self.most = replace(
            now,
            memory_bytes=max(now.memory_bytes, most.memory_bytes),
            cpu_s=max(now.cpu_s, most.cpu_s),
        )
        self.exceeded = exceeded(now, self._limits)
        if self.exceeded is not None:
            self._timer = None
            self._kill()
            return
        self._timer = call_later(LOOK_EVERY_S, self._look)


def exceeded(now: LivingUsage, limits: Limits) -> LimitName | None:
    if limits.memory_bytes is not None and now.memory_bytes > limits.memory_bytes:
        return "memory"
    if limits.processes is not None and now.processes > limits.processes:
        return "processes"
    if limits.cpu_s is not None and now.cpu_s > limits.cpu_s:
        return "cpu"
    return None
