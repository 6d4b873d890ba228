"""What a plan's limits become for one command: rlimits of its processes, limits of its tree.

An rlimit holds for one process, and some of them can be ignored, so the init also watches the
whole tree. The rlimits stand behind that as backstops and leave room above it, so that the report
says "memory" and not that some allocation failed.
"""

from __future__ import annotations

import math
import resource

from sandboxd.linux.init_wire import Rlimit
from sandboxd.policy.plan import Limits

_MIB = 1 << 20


def rlimits(limits: Limits, *, root: bool) -> list[Rlimit]:
    found = [_both(resource.RLIMIT_CORE, 0)]
    if limits.file_bytes is not None:
        found.append(_both(resource.RLIMIT_FSIZE, limits.file_bytes))
    if limits.memory_bytes is not None:
        # RLIMIT_AS would break node, Go and Java, which reserve far more than they use.
        found.append(_both(resource.RLIMIT_DATA, 2 * limits.memory_bytes + 64 * _MIB))
    if limits.cpu_s is not None:
        seconds = math.ceil(limits.cpu_s)
        found.append(Rlimit(resource=resource.RLIMIT_CPU, soft=seconds + 1, hard=seconds + 2))
    if limits.processes is not None and not root:
        # Counted for each user namespace; root is exempt from it. It counts threads too.
        found.append(_both(resource.RLIMIT_NPROC, 4 * limits.processes + 64))
    return found


def _both(which: int, value: int) -> Rlimit:
    return Rlimit(resource=which, soft=value, hard=value)
