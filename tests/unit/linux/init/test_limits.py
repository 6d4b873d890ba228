"""Limits that count a whole tree, spread over several processes."""

from __future__ import annotations

import os
import signal

import pytest
from init_driver import Init, Place, ready_init
from init_trees import sleepers

from sandboxd.linux.init_client import messages as wire

MIB = 1 << 20
# {each} MiB in each of {count} children; the parent waits until all of them hold it.
HOLD = """
import mmap, os, sys, time
ready, write = os.pipe()
for _ in range({count}):
    if os.fork() == 0:
        {allocate}
        os.write(write, b".")
        time.sleep({hold})
        os._exit(0)
got = 0
while got < {count}:
    got += len(os.read(ready, 99))
for _ in range({count}):
    os.wait()
print("all held it")
"""
PRIVATE = "data = bytearray(os.urandom(1)) * ({each} << 20)"
SHARED = "data = mmap.mmap(-1, {each} << 20); data.write(b'x' * ({each} << 20))"


def limited(init: Init, script: str, **limits: int) -> wire.LimitKind:
    ended = init.python(script, **limits).wait()
    assert ended.kinds == ["StartedMessage", "Limit", "ExitedMessage", "Gone"], (
        ended.kinds,
        ended.stderr,
    )
    assert ended.signal == signal.SIGKILL
    assert sleepers(init) == []
    kind: wire.LimitKind = ended.only(wire.Limit).kind
    return kind


@pytest.mark.parametrize("allocate", [PRIVATE, SHARED], ids=["private", "shared"])
def test_memory_is_summed_over_the_tree(init: Init, allocate: str) -> None:
    script = HOLD.format(count=4, hold=600, allocate=allocate.format(each=40))
    assert limited(init, script, tree_memory_bytes=120 * MIB) == wire.LimitKind.MEMORY


def test_pages_shared_after_a_fork_count_once(plain_init: Init) -> None:
    """Six processes that see the same 60 MiB, with a limit of 200."""
    script = "data = bytearray(b'x') * (60 << 20)\n" + HOLD.format(
        count=5, hold=0.4, allocate="len(data)"
    )
    ended = plain_init.python(script, tree_memory_bytes=200 * MIB).wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert ended.stdout == b"all held it\n"


def test_cpu_time_is_summed_over_the_tree(init: Init) -> None:
    script = """
import os
for _ in range(3): os.fork()
while True: pass
"""
    assert limited(init, script, tree_cpu_us=400_000) == wire.LimitKind.CPU


def test_cpu_time_of_children_that_have_ended_counts(plain_init: Init) -> None:
    """No single process comes near the limit."""
    script = """
import os, time
while True:
    if os.fork() == 0:
        while time.process_time() < 0.05: pass
        os._exit(0)
    os.wait()
"""
    assert limited(plain_init, script, tree_cpu_us=400_000) == wire.LimitKind.CPU


def test_processes_are_counted(init: Init) -> None:
    script = HOLD.format(count=12, hold=600, allocate="pass")
    assert limited(init, script, tree_processes=10) == wire.LimitKind.PROCESSES


def test_detached_processes_are_counted(init: Init) -> None:
    script = """
import os, time
for _ in range(12):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
time.sleep(600)
"""
    assert limited(init, script, tree_processes=10) == wire.LimitKind.PROCESSES


def test_children_of_threads_are_counted(plain_init: Init) -> None:
    """Linux lists children by the thread that forked them."""
    script = """
import subprocess, threading, time
def work():
    kept = [subprocess.Popen(["/bin/sleep", "600"]) for _ in range(3)]
    time.sleep(600)
for _ in range(4): threading.Thread(target=work).start()
"""
    assert limited(plain_init, script, tree_processes=10) == wire.LimitKind.PROCESSES


def test_what_stays_below_its_limits_is_left_alone(init: Init) -> None:
    script = HOLD.format(count=3, hold=0.3, allocate=PRIVATE.format(each=5))
    limits = {"tree_memory_bytes": 400 * MIB, "tree_cpu_us": 60_000_000, "tree_processes": 4}
    ended = init.python(script, **limits).wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert ended.stdout == b"all held it\n"


def test_without_limits_nobody_wakes_up(plain_init: Init) -> None:
    """Neither init nor reaper leaves poll while a command runs."""
    script = """
import os, time
def switches(pid):
    lines = open(f"/proc/{pid}/status").read().splitlines()
    return [line for line in lines if "ctxt_switches" in line]
reaper = os.getppid()
init = int(open(f"/proc/{reaper}/stat").read().rpartition(")")[2].split()[1])
time.sleep(0.2)
before = switches(reaper), switches(init)
time.sleep(0.5)
print(before == (switches(reaper), switches(init)))
"""
    assert plain_init.python(script).wait().stdout == b"True\n"


OBJECTS = {
    "memfd": "fd = os.memfd_create('x'); fill(fd)",
    "memfd as descriptor 0": "fd = os.memfd_create('x'); os.dup2(fd, 0); os.close(fd); fill(0)",
    "file": "fill(os.open('/tmp/x', os.O_CREAT | os.O_WRONLY))",
    "removed file": "fd = os.open('/tmp/x', os.O_CREAT | os.O_RDWR); os.unlink('/tmp/x')\nfill(fd)",
    "closed file": "fd = os.open('/tmp/x', os.O_CREAT | os.O_WRONLY)\nfill(fd); os.close(fd)",
    "segment": """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]
segment = libc.shmget(0, SIZE, 0o1600)
address = libc.shmat(segment, None, 0)
ctypes.memset(address, 1, SIZE)
libc.shmdt(address)
""",
}
FILL = """
import os, time
SIZE = 100 << 20
def fill(fd):
    for _ in range(100): os.write(fd, b"x" * (1 << 20))
"""
SCRATCH = {"flags": wire.SetupFlag.REQUIRE_PID1, "scratch": ["/tmp", "/dev/shm"]}


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("unprivileged", [False, True], ids=["self", "user"])
def test_memory_that_no_process_maps_counts(kind: str, unprivileged: bool) -> None:
    place = Place(bwrap=True, unprivileged=unprivileged and os.geteuid() == 0)
    with ready_init(place, **SCRATCH) as init:
        script = FILL + OBJECTS[kind] + "\ntime.sleep(600)"
        assert limited(init, script, tree_memory_bytes=64 * MIB) == wire.LimitKind.MEMORY


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_command_below_its_limit_may_have_it(kind: str) -> None:
    with ready_init(Place(bwrap=True), **SCRATCH) as init:
        script = FILL + OBJECTS[kind] + "\ntime.sleep(0.5)"
        ended = init.python(script, tree_memory_bytes=200 * MIB).wait()
        assert ended.code == 0, ended.stderr
        # It is still there, and it is not the next command's.
        later = init.python("import time; time.sleep(0.5)", tree_memory_bytes=64 * MIB).wait()
        assert later.code == 0


def test_a_memfd_that_many_hold_counts_once(plain_init: Init) -> None:
    script = FILL + "fd = os.memfd_create('x'); fill(fd)\n"
    script += HOLD.format(count=5, hold=0.5, allocate="pass")
    ended = plain_init.python(script, tree_memory_bytes=250 * MIB).wait()
    assert ended.code == 0, ended.stderr


def test_a_full_file_system_is_reported_with_the_failure() -> None:
    full = "import os\nfd = os.open('/dev/shm/x', os.O_CREAT | os.O_WRONLY)\n"
    full += "while True: os.write(fd, bytes(1 << 16))"
    mounts = ("--size", str(MIB), "--tmpfs", "/dev/shm")
    with ready_init(Place(bwrap=True, mounts=mounts), **SCRATCH) as init:
        ended = init.python(full).wait()
        assert ended.kinds == ["StartedMessage", "NoSpace", "ExitedMessage", "Gone"], ended.stderr
        assert ended.only(wire.NoSpace).path == "/dev/shm"
        # Of a sandbox that stays, what was full before is no news to a command that succeeds.
        stays = wire.ExecFlag.KEEP_BACKGROUND
        later = init.shell("true", flags=stays).wait()
        assert later.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
        failed = init.shell("exit 3", flags=stays).wait()
        assert failed.only(wire.NoSpace) == wire.NoSpace("/dev/shm", before=True)


IGNORES_TERM = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\n"


def test_the_reaper_ends_what_has_no_time_left(init: Init) -> None:
    """Nothing is sent to the init in between: the daemon may be stopped."""
    script = IGNORES_TERM + "import os\nos.fork()\nif os.fork() == 0: os.setsid()\n"
    assert limited(init, script + "time.sleep(600)", wall_ms=300) == wire.LimitKind.TIMEOUT


def test_a_command_that_stops_its_reaper_has_no_more_time(init: Init) -> None:
    script = IGNORES_TERM + "import os\nos.kill(os.getppid(), 19)\ntime.sleep(600)"
    ended = init.python(script, wall_ms=600).wait()
    assert ended.only(wire.Limit).kind == wire.LimitKind.TIMEOUT
    assert sleepers(init) == []


def test_a_command_in_time_is_left_alone(plain_init: Init) -> None:
    ended = plain_init.shell("sleep 0.1", wall_ms=20_000).wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]


def test_what_goes_on_in_the_background_has_no_deadline(plain_init: Init) -> None:
    command = plain_init.shell(
        "(sleep 0.8; echo still there) & exit 0",
        wall_ms=300,
        flags=wire.ExecFlag.KEEP_BACKGROUND,
    )
    ended = command.wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert ended.stdout == b"still there\n"
