"""Turn a plan's limits into rlimits of each process and limits of the whole tree.

An rlimit holds for one process, and some can be ignored, so the init also watches the tree. The
rlimits are a backstop with some room above the limit, so that the report says "memory" and not that
an allocation failed.
"""

from __future__ import annotations

import math
import resource
from typing import Literal

from sandboxd.linux.init_client.messages import Rlimit
from sandboxd.policy.plan import Limits

# What RLIMIT_NPROC counts for a command. "namespace": what is in its user namespace; "user": all
# that its user runs on this machine; "container": the same, in a container that has a limit of its
# own; "root": nothing, root is exempt.
ProcessCount = Literal["namespace", "user", "container", "root"]

_MIB = 1 << 20
# RLIMIT_NPROC counts threads, and the init's own processes.
_ROOM = 64


def rlimits(limits: Limits, counts: ProcessCount, *, shared: bool = False) -> list[Rlimit]:
    """`shared`: other commands run in the same sandbox."""
    found = [_both(resource.RLIMIT_CORE, 0)]
    if limits.file_bytes is not None:
        found.append(_both(resource.RLIMIT_FSIZE, limits.file_bytes))
    if limits.memory_bytes is not None:
        # RLIMIT_AS would break node, Go and Java, which reserve far more than they use.
        found.append(_both(resource.RLIMIT_DATA, 2 * limits.memory_bytes + 64 * _MIB))
    if limits.cpu_s is not None:
        seconds = math.ceil(limits.cpu_s)
        found.append(Rlimit(resource=resource.RLIMIT_CPU, soft=seconds + 1, hard=seconds + 2))
    if limits.process_bound is not None and counts != "root":
        most = _tasks(limits.process_bound, counts, shared=shared)
        found.append(_both(resource.RLIMIT_NPROC, _permitted(most)))
    return found


def _tasks(processes: int, counts: ProcessCount, *, shared: bool) -> int:
    if counts == "container":
        return 4 * processes + _ROOM
    if counts == "namespace" and not shared:
        return processes + _ROOM
    return processes + _ROOM + present_tasks()


def present_tasks() -> int:
    """Threads of all users: an upper bound for those of one user, in one cheap read."""
    with open("/proc/loadavg", encoding="ascii") as file:
        return int(file.read().split()[3].partition("/")[2])


def _permitted(value: int) -> int:
    """A hard limit can only be lowered."""
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _both(which: int, value: int) -> Rlimit:
    return Rlimit(resource=which, soft=value, hard=value)
