"""The subtree of cgroups that is delegated to the daemon. It makes one cgroup for each command with
limits (`command`) and one for each sandbox (`sandbox`). With cgroup v1, for root, these are limits
on the number of processes only.

Each command gets a fresh cgroup: after cgroup.kill some kernels kill processes that enter it later.
The daemon first moves itself into a leaf, because a cgroup with processes cannot enable controllers
for its children. The cgroups of sandboxes are used again once they are empty: to make or remove one
waits while any process of the machine enters one.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections import deque

from sandboxd.linux.cgroup import tree as cgroup_tree
from sandboxd.linux.cgroup import v1 as cgroup_v1
from sandboxd.linux.cgroup.command_limits import CommandCgroup
from sandboxd.linux.cgroup.sandbox_process_limit import SandboxCgroup
from sandboxd.linux.cgroup.tree import NotDelegated, members, write
from sandboxd.policy.plan import Limits

log = logging.getLogger(__name__)
LEAF = "supervisor"
MOST_SPARE = 64
MOST_TRIED = 4


class Cgroups:
    """The subtree that belongs to the daemon. Made once, by `take`.

    `v2`: False for the pids controller of v1, which has the same files.
    """

    def __init__(self, folder: str, controllers: frozenset[str], *, v2: bool = True) -> None:
        self._folder = folder
        self._held = -1 if v2 else cgroup_v1.hold(folder)
        self.controllers = controllers
        self.v2 = v2
        self.left_out = "" if v2 else cgroup_v1.why_no_memory()
        self._numbers = itertools.count(1)
        self._leftover: list[CommandCgroup] = []
        self._spare: deque[SandboxCgroup] = deque()

    def hold(self, limits: Limits) -> bool:
        """Whether a command's own cgroup would enforce one of the limits that were asked for."""
        if self.v2:
            return any((limits.memory_bytes, limits.cpu_s, limits.processes))
        return limits.processes is not None

    def make(self, limits: Limits, sandbox: SandboxCgroup | None = None) -> CommandCgroup | None:
        """None, and a line in the log, if the kernel refuses: limits are then best effort.

        With v1 it lies in the sandbox's, whose limit holds for all commands together; v2 does not
        permit this, because the sandbox's has processes.
        """
        self._tidy()
        above = self._folder if self.v2 or sandbox is None else sandbox.folder
        folder = os.path.join(above, f"command-{os.getpid()}-{next(self._numbers)}")
        try:
            return CommandCgroup(folder, limits, self.controllers, v2=self.v2)
        except OSError as error:
            log.warning("no cgroup for a command: %s", error)
            return None

    def make_for_sandbox(self) -> SandboxCgroup | None:
        """None, and a line in the log, if the kernel refuses."""
        for _ in range(min(len(self._spare), MOST_TRIED)):
            spare = self._spare.popleft()
            renewed = spare.renewed()
            if renewed is not None:
                return renewed
            self._spare.append(spare)
        folder = os.path.join(self._folder, f"sandbox-{os.getpid()}-{next(self._numbers)}")
        try:
            return SandboxCgroup(folder)
        except OSError as error:
            log.warning("no cgroup for a sandbox: %s", error)
            return None

    def let_go(self, cgroup: CommandCgroup | SandboxCgroup, *, kill: bool = True) -> None:
        """Kill the processes in it and remove it, now or when it is empty. A sandbox's ends with
        its init, and is used again once it is empty."""
        if isinstance(cgroup, SandboxCgroup):
            cgroup.end()
            self._spare.append(cgroup)
            while len(self._spare) > MOST_SPARE and self._spare[0].remove():
                self._spare.popleft()
            return
        if cgroup.remove():
            return
        if kill:
            cgroup.kill()
        self._leftover.append(cgroup)

    def close(self) -> None:
        self._tidy()
        for cgroup in self._spare:
            cgroup.remove()
        if not self.v2:
            cgroup_v1.remove_tree(self._folder)
            os.close(self._held)

    def _tidy(self) -> None:
        self._leftover = [cgroup for cgroup in self._leftover if not cgroup.remove()]


def take() -> Cgroups | NotDelegated:
    """The delegated subtree of v2, if there is one; else, for root, cgroups of v1."""
    found = _take_v2()
    if isinstance(found, Cgroups):
        return found
    folder = cgroup_v1.find()
    base = folder if isinstance(folder, NotDelegated) else cgroup_v1.make_base(folder)
    if isinstance(base, NotDelegated):
        return NotDelegated(f"{found.reason}; {base.reason}" if os.getuid() == 0 else found.reason)
    return Cgroups(base, frozenset({cgroup_v1.CONTROLLER}), v2=False)


def _take_v2() -> Cgroups | NotDelegated:
    """Moves this process into a leaf of the subtree."""
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
