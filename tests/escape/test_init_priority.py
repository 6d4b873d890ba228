"""A command takes the CPU time from the sandbox's init, which then neither ends nor reports it."""

from __future__ import annotations

import pytest
from support.attacks import Box, freely, python

pytestmark = pytest.mark.isolation

# Each way by itself; 0 is the caller, whose own priority it may lower.
DEMOTE = python("""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    pid, changed = int(args[0]), []
    parameters, mask = ctypes.c_int(0), ctypes.c_ulong(1)
    if libc.sched_setscheduler(pid, 5, ctypes.byref(parameters)) == 0:
        changed.append("idle")
    if libc.sched_setaffinity(pid, 8, ctypes.byref(mask)) == 0:
        changed.append("affinity")
    for which, who in ((0, pid), (1, pid), (2, os.getuid())):
        if pid == 1 and libc.setpriority(which, who, 19) == 0:
            changed.append(f"priority {which}")
    worked(str(changed)) if changed else blocked("nothing changed")
""")


@pytest.mark.parametrize("policy", ["inherit", "baseline", "strict"])
def test_a_command_does_not_demote_the_init(box: Box, policy: str) -> None:
    assert freely(DEMOTE, 0).worked
    assert box.attack(DEMOTE, 0, manifest={"syscall_policy": policy}).worked
    assert box.attack(DEMOTE, 1, manifest={"syscall_policy": policy}).blocked
