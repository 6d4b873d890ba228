"""The cgroup of a whole sandbox: the kernel refuses forks beyond a number of tasks.

The init enters it during setup, before it forks: entering a cgroup takes the kernel ten
milliseconds, forking in it costs nothing. So a warm sandbox has its limit when a command arrives.
A template enters it before the init is cloned, and leaves it for the next one's.
"""

from __future__ import annotations

import contextlib
from copy import copy

from sandboxd.linux.cgroup.tree import CgroupFolder, parse_counts, read, write
from sandboxd.policy.limits import DEFAULT_PROCESSES

# The init, its watchdog, the processes that wait for the next command.
OWN_PROCESSES = 16
# The reaper of a command.
PROCESSES_PER_COMMAND = 2


class SandboxCgroup(CgroupFolder):
    """The pids controller's part of v1 and of v2 has the same files.

    Its folder is used again for other sandboxes, each with an object of its own. The old object
    does nothing any more: a command whose output is still being sent has one.
    """

    def __init__(self, folder: str) -> None:
        self._is_over = False
        self._allowed: list[int | None] = []
        self._written = ""
        self._refused_before = 0
        super().__init__(folder)

    def _set_limits(self) -> None:
        self._write(OWN_PROCESSES + PROCESSES_PER_COMMAND + DEFAULT_PROCESSES)

    def admit(self, processes: int | None) -> None:
        """A command with this limit starts; None: no limit. OSError if the kernel refuses."""
        allowed = [*self._allowed, processes]
        known = [number for number in allowed if number is not None]
        unlimited = len(known) < len(allowed)
        self._write(
            None if unlimited else OWN_PROCESSES + sum(known) + PROCESSES_PER_COMMAND * len(known)
        )
        self._allowed = allowed

    def release(self, processes: int | None) -> None:
        """The command ended. The limit is lowered when the next one starts."""
        self._allowed.remove(processes)

    def end(self) -> None:
        """The sandbox has ended: what is left in it cannot fork."""
        self.close_entrance()
        if not self.is_empty():
            self.refuse_forks()
        self._is_over = True

    def is_empty(self) -> bool:
        """Whether no process is in it, nor one that has ended and is not reaped."""
        return read(self.folder, "pids.current").strip() == "0"

    def renewed(self) -> SandboxCgroup | None:
        """For another sandbox; None while a process of the last one is in it."""
        if not self.is_empty():
            return None
        new = copy(self)
        new._is_over, new._allowed, new._refused_before = False, [], self._refused()
        try:
            new._set_limits()
            new.open_entrance()
        except OSError:
            return None
        return new

    def forks_refused(self) -> int:
        return 0 if self._is_over else self._refused() - self._refused_before

    def _refused(self) -> int:
        return parse_counts(read(self.folder, "pids.events")).get("max", 0)

    def refuse_forks(self) -> None:
        """Forbid every fork in it, so that a kill reaches all processes."""
        with contextlib.suppress(OSError):
            self._write(0)

    def _write(self, most: int | None) -> None:
        text = "max" if most is None else str(most)
        if text != self._written and not self._is_over:
            write(self.folder, "pids.max", text)
            self._written = text
