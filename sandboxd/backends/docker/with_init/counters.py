"""Counters of a whole container, read from its cgroup on this machine.

The engine's answers come late (OOMKilled after the end, stats once a second) and do not show a
single command. These files show it at once, with cgroups of either version.
"""

from __future__ import annotations

import os

import msgspec

from sandboxd.backends.docker.with_init.handshake import cgroups_of
from sandboxd.linux.cgroup.tree import parse_counts

ROOT = "/sys/fs/cgroup"


class Counts(msgspec.Struct, frozen=True):
    """None: not available on this machine."""

    cpu_s: float | None = None
    memory_kills: int | None = None
    forks_refused: int | None = None


class Counters:
    """`folders`: the container's folder for each controller; "" is the unified one."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders

    @classmethod
    def of(cls, pid: int, root: str = ROOT) -> Counters:
        folders: dict[str, str] = {}
        for line in cgroups_of(pid).splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                folder = os.path.join(root, controller, path.lstrip("/"))
                if path != "/" and os.path.isdir(folder):
                    folders[controller] = folder
        return cls(folders)

    def read(self) -> Counts:
        unified = parse_counts(self._at("", "cpu.stat")).get("usage_usec")
        older = _number(self._at("cpuacct", "cpuacct.usage"))
        cpu_s = unified / 1e6 if unified is not None else older / 1e9 if older is not None else None
        return Counts(
            cpu_s=cpu_s,
            memory_kills=_first(
                parse_counts(self._at("", "memory.events")).get("oom_kill"),
                parse_counts(self._at("memory", "memory.oom_control")).get("oom_kill"),
            ),
            forks_refused=_first(
                parse_counts(self._at("", "pids.events")).get("max"),
                parse_counts(self._at("pids", "pids.events")).get("max"),
            ),
        )

    def _at(self, controller: str, name: str) -> str:
        folder = self._folders.get(controller)
        if folder is None:
            return ""
        try:
            with open(os.path.join(folder, name), encoding="ascii") as file:
                return file.read()
        except (OSError, UnicodeDecodeError):
            return ""


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
