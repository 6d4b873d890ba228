"""What the kernel counts for a container as a whole, read from its cgroup on this machine.

The engine's own answers come late (OOMKilled after the end, stats once a second) and say nothing of
a single command; these files tell it at once, with cgroups of either version.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from sandboxd.backends.docker.dial import cgroups_of

ROOT = "/sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class Counts:
    """None: this machine does not tell."""

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
        unified = _fields(self._at("", "cpu.stat")).get("usage_usec")
        older = _number(self._at("cpuacct", "cpuacct.usage"))
        cpu_s = unified / 1e6 if unified is not None else older / 1e9 if older is not None else None
        return Counts(
            cpu_s=cpu_s,
            memory_kills=_first(
                _fields(self._at("", "memory.events")).get("oom_kill"),
                _fields(self._at("memory", "memory.oom_control")).get("oom_kill"),
            ),
            forks_refused=_first(
                _fields(self._at("", "pids.events")).get("max"),
                _fields(self._at("pids", "pids.events")).get("max"),
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


def _fields(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in pairs if len(words) == 2 and words[1].isdigit()}


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
