"""Other processes: signals, tracing, memory, descriptors, priorities; on the host, in the init."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.attacks import Box, Build, freely, plain_bwrap, python, verdict_of, weakest
from support.bystander import SECRET, Bystander, bystander

pytestmark = pytest.mark.isolation

KILL = python("os.kill(int(args[0]), int(args[1])); worked()")


def test_host_process_is_not_killed(box: Box, host_process: Bystander, outside: Path) -> None:
    """kill(2) of a process of the same user outside."""
    with bystander(outside) as other:
        assert freely(KILL, other.pid, 9).worked
        assert other.process.wait(10) == -9
    assert box.attack(KILL, host_process.pid, 9).blocked
    assert host_process.running


def test_daemon_is_not_signalled(box: Box) -> None:
    """kill(2) of the daemon itself; signal 0 asks whether it could be done."""
    assert freely(KILL, box.daemon.pid, 0).worked
    assert box.attack(KILL, box.daemon.pid, 0).blocked
    assert box.attack(KILL, box.daemon.pid, 15).blocked
    assert box.run("true").exited(0)


@pytest.mark.requires("bubblewrap")
def test_killing_everybody_reaches_nobody_outside(box: Box, host_process: Bystander) -> None:
    """kill(-1): every process of the user. The control has a pid namespace to itself."""
    attack = python("""
        import subprocess
        other = subprocess.Popen(["sleep", "60"])
        os.kill(-1, 9)
        worked() if other.wait() == -9 else blocked("alive")
    """)
    alone = [*plain_bwrap(), "--unshare-pid", "--proc", "/proc"]
    control = subprocess.run([*alone, *attack], capture_output=True, timeout=30, check=False)
    assert verdict_of(control).worked
    box.run(*attack, manifest=weakest())
    assert host_process.running
    assert box.run("true").exited(0)


def test_group_of_a_host_process_is_not_signalled(box: Box, outside: Path) -> None:
    """kill of a process group, by its number."""
    with bystander(outside, prefix=["setsid"]) as other:
        assert freely(KILL, -other.pid, 0).worked
        assert box.attack(KILL, -other.pid, 9).blocked
        assert other.running


def test_pidfd_does_not_signal_a_host_process(box: Box, host_process: Bystander) -> None:
    """pidfd_open and pidfd_send_signal instead of kill(2)."""
    attack = python("""
        handle = call("pidfd_open", int(args[0]), 0)
        call("pidfd_send_signal", handle, int(args[1]), None, 0)
        worked()
    """)
    assert freely(attack, host_process.pid, 0).worked
    assert box.attack(attack, host_process.pid, 9).blocked
    assert host_process.running


def test_host_process_is_not_traced(box: Box, build: Build, host_process: Bystander) -> None:
    """ptrace(PTRACE_ATTACH) and a change of its memory."""
    attack = build("ptrace_attach")
    args = (host_process.pid, host_process.address)
    assert freely(attack, *args).worked
    changed = host_process.memory
    assert changed.startswith("AAAAAAAA")
    assert box.attack(attack, *args, manifest=weakest(fs_read_allow=[*attack])).blocked
    assert host_process.running


VM_COPY = """
    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    local = ctypes.create_string_buffer(b"overwritten" if args[2] == "write" else b"", 64)
    size = 12 if args[2] == "write" else 64
    here = Vector(ctypes.addressof(local), size)
    there = Vector(int(args[1]), size)
    function = libc.process_vm_writev if args[2] == "write" else libc.process_vm_readv
    done = function(int(args[0]), ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if done < 0:
        blocked(errno.errorcode[ctypes.get_errno()])
    worked(local.value.decode())
"""


def test_memory_of_a_host_process_is_not_copied(box: Box, host_process: Bystander) -> None:
    """process_vm_readv."""
    attack = python(VM_COPY)
    args = (host_process.pid, host_process.address, "read")
    control = freely(attack, *args)
    assert control.worked
    assert control.words == SECRET
    assert box.attack(attack, *args).blocked


def test_memory_of_a_host_process_is_not_overwritten(box: Box, host_process: Bystander) -> None:
    """process_vm_writev."""
    attack = python(VM_COPY)
    args = (host_process.pid, host_process.address, "write")
    assert freely(attack, *args).worked
    assert host_process.memory == "overwritten"
    with bystander(Path("/")) as other:
        assert box.attack(attack, other.pid, other.address, "write").blocked
        assert other.memory == SECRET


GET_DESCRIPTOR = python("""
    handle = call("pidfd_open", int(args[0]), 0)
    fd = call("pidfd_getfd", handle, int(args[1]), 0)
    worked(os.fstat(fd).st_mode)
""")


def test_descriptor_of_a_host_process_is_not_taken(box: Box, host_process: Bystander) -> None:
    """pidfd_getfd: a copy of another process's open file."""
    args = (host_process.pid, host_process.descriptor)
    assert freely(GET_DESCRIPTOR, *args).worked
    assert box.attack(GET_DESCRIPTOR, *args).blocked


def test_sockets_of_the_init_are_not_taken(box: Box, host_process: Bystander) -> None:
    """pidfd_getfd of every descriptor of the init and of the keeper: they lead to the daemon."""
    attack = python("""
        def parent(pid):
            return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
        pids = [int(args[0])] if args else [os.getppid(), parent(os.getppid()) or 1]
        refused = []
        for pid in pids:
            handle = call("pidfd_open", pid, 0)
            for number in range(64):
                try:
                    call("pidfd_getfd", handle, number, 0)
                    worked(pid, number)
                except OSError as error:
                    refused.append(errno.errorcode[error.errno])
        blocked(*sorted({*refused}))
    """)
    assert freely(attack, host_process.pid).worked
    inside = box.attack(attack)
    # EBADF would only mean that the number was wrong.
    assert inside.blocked
    assert inside.words == "EPERM"


@pytest.mark.parametrize("relation", ["init", "keeper"])
def test_init_is_not_traced(box: Box, build: Build, host_process: Bystander, relation: str) -> None:
    """ptrace, /proc/PID/mem, /proc/PID/fd of the processes that supervise the command."""
    attack = python("""
        def parent(pid):
            return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
        keeper = os.getppid()
        pids = {"keeper": lambda: keeper, "init": lambda: parent(keeper)}
        pid = pids.get(args[0], lambda: int(args[0]))()
        def trace():
            c("ptrace", 16, pid, 0, 0)
            os.waitpid(pid, 0x40000000)
            c("ptrace", 17, pid, 0, 0)
        own = f"/proc/{pid}/"
        ways = (trace, lambda: open(own + "mem", "rb"), lambda: os.readlink(own + "fd/0"),
                lambda: open(own + "environ").read(), lambda: os.readlink(own + "exe"))
        done = []
        for number, way in enumerate(ways):
            try:
                way()
                done.append(number)
            except OSError:
                pass
        worked(*done) if done else blocked("none")
    """)
    control = freely(attack, host_process.pid)
    assert control.words.split() == ["0", "1", "2", "3", "4"]
    inside = box.attack(attack, relation)
    assert inside.blocked, inside.words


def test_limits_of_a_host_process_are_not_changed(box: Box, host_process: Bystander) -> None:
    """prlimit of another process: no more open files for the user's editor."""
    attack = python("""
        limit = struct.pack("QQ", 64, int(args[1]))
        c("prlimit", int(args[0]), 7, ctypes.create_string_buffer(limit), None)
        worked()
    """)
    limits = Path(f"/proc/{host_process.pid}/limits")
    line = next(x for x in limits.read_text().splitlines() if x.startswith("Max open files"))
    hard = line.split()[4]
    assert freely(attack, host_process.pid, hard).worked
    before = limits.read_text()
    assert box.attack(attack, host_process.pid, 64).blocked
    assert limits.read_text() == before


def test_priority_of_a_host_process_is_not_changed(box: Box, host_process: Bystander) -> None:
    """setpriority, and one CPU only: slow another process down."""
    attack = python("""
        done = []
        for way in (lambda: os.setpriority(os.PRIO_PROCESS, int(args[0]), int(args[1])),
                    lambda: os.sched_setaffinity(int(args[0]), [0])):
            try:
                way()
                done.append("done")
            except OSError:
                pass
        worked(*done) if done else blocked("none")
    """)
    pid = host_process.pid
    # Nobody can be given more than they have, and the tests may run with little themselves.
    free, inside = (max(nice, os.getpriority(os.PRIO_PROCESS, 0)) for nice in (5, 10))
    assert freely(attack, pid, free).words == "done done"
    assert box.attack(attack, pid, inside).blocked
    assert os.getpriority(os.PRIO_PROCESS, pid) == free
