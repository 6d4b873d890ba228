"""Limits that count a whole tree, spread over several processes."""

from __future__ import annotations

import signal

import pytest
from init_driver import Init
from init_trees import sleepers

from sandboxd.linux import init_wire as wire

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
    assert ended.kinds == ["Started", "Limit", "Exited", "Gone"], (ended.kinds, ended.stderr)
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
    assert ended.kinds == ["Started", "Exited", "Gone"]
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
    assert ended.kinds == ["Started", "Exited", "Gone"]
    assert ended.stdout == b"all held it\n"


def test_without_limits_nobody_wakes_up(plain_init: Init) -> None:
    """Neither init nor keeper leaves poll while a command runs."""
    script = """
import os, time
def switches(pid):
    lines = open(f"/proc/{pid}/status").read().splitlines()
    return [line for line in lines if "ctxt_switches" in line]
keeper = os.getppid()
init = int(open(f"/proc/{keeper}/stat").read().rpartition(")")[2].split()[1])
time.sleep(0.2)
before = switches(keeper), switches(init)
time.sleep(0.5)
print(before == (switches(keeper), switches(init)))
"""
    assert plain_init.python(script).wait().stdout == b"True\n"
