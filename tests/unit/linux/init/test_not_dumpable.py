"""A command may not trace the init or its reaper, nor take their descriptors: they hold the wire.

Control: the same works on a process of the same uid that is dumpable.
"""

from __future__ import annotations

import json

import pytest
from init_driver import Init, Place

from sandboxd.linux.init_client import messages as wire

pytestmark = pytest.mark.isolation

PROBE = """
import ctypes, errno, json, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
ATTACH, DETACH = 16, 17

def outcome(result):
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]

def attack(pid):
    found = {}
    handle = os.pidfd_open(pid)
    found["getfd"] = outcome(libc.syscall(438, handle, 1, 0))
    attached = libc.ptrace(ATTACH, pid, 0, 0)
    found["ptrace"] = outcome(attached)
    if attached == 0:
        os.waitpid(pid, 0x40000000)
        libc.ptrace(DETACH, pid, 0, 0)
    for name in ("fd/1", "mem", "environ", "maps"):
        path = f"/proc/{pid}/{name}"
        try:
            os.readlink(path) if name == "fd/1" else open(path, "rb").close()
            found[name] = "done"
        except OSError as error:
            found[name] = errno.errorcode[error.errno]
    return found

reaper = os.getppid()
init = int(open(f"/proc/{reaper}/stat").read().rpartition(")")[2].split()[1]) or reaper
victim = os.fork()
if victim == 0:
    time.sleep(600)
    os._exit(0)
print(json.dumps([attack(init), attack(reaper), attack(victim)]))
os.kill(victim, 9)
"""


@pytest.mark.parametrize("flags", [0, wire.ExecFlag.KEEP_BACKGROUND])
def test_neither_init_nor_reaper_can_be_taken_over(init: Init, place: Place, flags: int) -> None:
    """In a pid namespace only a command that may leave processes behind has a reaper."""
    if not place.bwrap and not place.unprivileged and is_root(init):
        pytest.skip("root with all capabilities may trace everybody; bwrap drops them")
    ended = init.python(PROBE, flags=flags).wait()
    assert ended.code == 0, ended.stderr
    of_init, of_reaper, control = json.loads(ended.stdout)
    assert set(control.values()) == {"done"}
    for taken in (of_init, of_reaper):
        assert set(taken) == set(control)
        assert set(taken.values()) <= {"EPERM", "EACCES"}, taken


def is_root(init: Init) -> bool:
    return init.exec("id", "-u").wait().stdout == b"0\n"
