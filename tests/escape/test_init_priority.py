"""A command takes the CPU time from the sandbox's init, which then neither ends nor reports it."""

from __future__ import annotations

import pytest
from support.attacks import PYTHON, Box, freely, python
from support.daemon import stdout_of

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


# What the init has forked ahead for the next command is the only other process.
DEMOTE_OTHERS = """
import os, time
time.sleep(0.2)
for pid in {int(name) for name in os.listdir("/proc") if name.isdigit()} - {1, os.getpid()}:
    try:
        os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})
        os.setpriority(os.PRIO_PROCESS, pid, 19)
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        print("demoted")
    except OSError:
        pass
"""
OWN = "import os; print(os.nice(0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0)))"


def test_a_command_that_has_ended_does_not_demote_the_next_one(box: Box) -> None:
    inside = {"sandbox": box.connection.call("sandbox/create", {})["sandbox"]}

    def run(code: str) -> str:
        params = {**inside, "argv": [PYTHON, "-c", code]}
        return stdout_of(box.connection.call("execute", params))

    before = run(OWN)
    demoted = run(DEMOTE_OTHERS)
    assert run(OWN) == before
    assert "demoted" in demoted or box.backend != "bubblewrap"
    box.connection.call("sandbox/destroy", inside)
