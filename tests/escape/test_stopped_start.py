"""A command stops another one of its persistent sandbox before that executes its program.

Whether it meets that moment is chance; the unit test of the init, of the same name, is sure to.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing, suppress
from typing import Any

import pytest
from support.attacks import PYTHON, Box
from support.rpc import RpcError

pytestmark = pytest.mark.isolation
COMMANDS, ROUNDS = 60, 5
VICTIM = {"argv": ["/bin/true"], "manifest": {"timeout": 5}}  # one that has executed stays stopped
# It stops every new process; what has executed its program may go on. The parent of one that has
# not waits in vfork.
STOP = """
import os, signal
def look(pid, name):
    with open(f"/proc/{pid}/{name}") as file:
        return file.read()
def state_and_parent(pid):
    return look(pid, "stat").rpartition(")")[2].split()[:2]
print("up", flush=True)
while True:
    with open("/proc/loadavg") as file:
        last = int(file.read().split()[4])
    for pid in {*range(last - 1, last + 4)} - {os.getpid()}:
        try:
            os.kill(pid, signal.SIGSTOP)
            parent = state_and_parent(pid)[1]
            if look(pid, "comm") == "sandboxd-init\\n" and state_and_parent(parent)[0] == "D":
                print("stopped", flush=True)
            else:
                os.kill(pid, signal.SIGCONT)
        except OSError:
            pass
"""


def attacked(box: Box, inside: dict[str, Any], ends: Counter[str]) -> bool:
    """Commands beside the attack. It tells when it has stopped one that had executed nothing."""
    attack = {**inside, "argv": [PYTHON, "-c", STOP], "execution_id": "attack", "stream": True}
    with closing(Box(box.backend, box.daemon)) as other:
        asked = other.connection.start("execute", attack)
        other.connection.notification("execution/output", execution_id="attack")
        for _ in range(COMMANDS):
            try:
                result = box.connection.call("execute", {**inside, **VICTIM})
                ends[result["outcome"]] += 1
            except RpcError as error:
                ends[str(error.kind)] += 1
        with suppress(RpcError):  # it may have met itself
            other.connection.call("execution/cancel", {"execution_id": "attack"})
        result = other.connection.result(asked)
    assert result["outcome"] in ("cancelled", "signaled", "exited"), (result, ends)
    return bool(result["stdout"]["bytes"] > len("up\n"))


def test_it_harms_no_more_than_that_command(box: Box) -> None:
    inside = {"sandbox": box.connection.call("sandbox/create", {})["sandbox"]}
    ends: Counter[str] = Counter()
    any(attacked(box, inside, ends) for _ in range(ROUNDS))  # until one was stopped
    if box.backend == "landlock" and {"isolation_lost", "NotFound"} & set(ends):
        return  # without a pid namespace it meets the init's processes, too: the sandbox was ended
    assert set(ends) <= {"exited", "ExecFailed", "signaled", "timeout"}, (
        ends
    )  # it may meet them all
    assert box.connection.call("execute", {**inside, "argv": ["/bin/true"]})["exit_code"] == 0
    box.connection.call("sandbox/destroy", inside)
