"""Limits: each stops what it is for, also when that is split over children, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faulty_backends import impersonated
from support.rpc import RpcError
from support.runs import Ran
from support.subject import Subject

MIB = 1 << 20
# A limit that does not hold must not take the machine along, nor the test's own patience.
BACKSTOP = {"base": "minimal", "timeout": 3 if impersonated() else 20}


def told(ran: Ran, kind: str) -> bool:
    """Whether a denial says so. Without any sandbox nothing is denied, things just end."""
    if ran.raw["backend"] == "none":
        return ran.denials == []
    return [denial["kind"] for denial in ran.denials] == [kind]


@pytest.mark.holds("max_memory_bytes")
def test_a_memory_hog_is_stopped(subject: Subject) -> None:
    code = f"""
hog = []
for _ in range(30):
    hog.append(bytearray(b"x") * (10 * {MIB}))
import time
time.sleep(15)
"""
    ran = subject.python(code, manifest={"max_memory_bytes": 100 * MIB, **BACKSTOP})
    assert ran.outcome == "memory", ran.story
    assert told(ran, "memory"), ran.story


@pytest.mark.holds("max_memory_bytes")
def test_a_memory_hog_split_over_children_is_stopped(subject: Subject) -> None:
    """Six processes, each well below the limit."""
    code = f"""
import os, time
for _ in range(6):
    if os.fork() == 0:
        hog = bytearray(b"x") * (40 * {MIB})
        time.sleep(15)
        os._exit(0)
while not os.WIFSIGNALED(os.wait()[1]):
    pass  # a kernel that kills only one of them leaves the rest to us
"""
    ran = subject.python(code, manifest={"max_memory_bytes": 120 * MIB, **BACKSTOP})
    assert ran.outcome == "memory", ran.story


FILL = f"""
import os, sys, time
def fill(fd):
    for _ in range(150): os.write(fd, b"x" * {MIB})
"""
HELD = "time.sleep(15)"
# What keeps memory without a process that maps it.
UNMAPPED = {
    "memfd": "fill(os.memfd_create('x'))",
    "tmp": "fill(os.open('/tmp/x', os.O_CREAT | os.O_WRONLY))",
    "removed": "fd = os.open('/tmp/x', os.O_CREAT | os.O_RDWR); os.unlink('/tmp/x'); fill(fd)",
    "shm": "fill(os.open('/dev/shm/x', os.O_CREAT | os.O_WRONLY))",
}


def unmapped(subject: Subject, kind: str) -> Ran:
    manifest = {"max_memory_bytes": 64 * MIB, **BACKSTOP}
    if kind != "memfd":
        manifest["tmp_bytes"] = 512 * MIB
    subject.ask_first(manifest)
    return subject.python("\n".join([FILL, UNMAPPED[kind], HELD]), manifest=manifest)


@pytest.mark.holds("max_memory_bytes")
def test_a_memfd_counts(subject: Subject) -> None:
    ran = unmapped(subject, "memfd")
    assert ran.outcome == "memory", ran.story


@pytest.mark.holds("tmp_bytes")
@pytest.mark.parametrize("kind", ["tmp", "removed", "shm"])
def test_a_file_in_memory_counts(subject: Subject, kind: str) -> None:
    """Where the sandbox has file systems of its own; elsewhere temporary files are on a disk."""
    ran = unmapped(subject, kind)
    assert ran.outcome == "memory", ran.story


def full(subject: Subject, folder: str, field: str) -> None:
    code = f"{FILL}\nfill(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY))"
    ran = subject.python(code, f"{folder}/x", manifest={field: 20 * MIB, **BACKSTOP})
    assert ran.exited(1), ran.story
    assert "No space left on device" in ran.stderr
    if ran.raw["backend"] != "docker":
        (denial,) = ran.denials
        assert (denial["kind"], denial["target"]) == ("file_size", folder)
        assert denial["evidence"] == "kernel"
        assert denial["remedy"] == {field: 80 * MIB}
    ran = subject.python(code, f"{folder}/x", manifest={field: 200 * MIB, **BACKSTOP})
    assert ran.exited(0), ran.story


@pytest.mark.holds("tmp_bytes")
def test_the_size_of_tmp_is_what_was_asked_for(subject: Subject) -> None:
    full(subject, "/tmp", "tmp_bytes")


@pytest.mark.holds("shm_bytes")
def test_the_size_of_dev_shm_is_what_was_asked_for(subject: Subject) -> None:
    full(subject, "/dev/shm", "shm_bytes")


def test_memory_below_the_limit_is_left_alone(subject: Subject) -> None:
    code = f"hog = bytearray(b'x') * (40 * {MIB}); print(len(hog))"
    ran = subject.python(code, manifest={"max_memory_bytes": 200 * MIB})
    assert ran.exited(0), ran.story


@pytest.mark.holds("max_cpu_secs")
def test_a_cpu_hog_is_stopped(subject: Subject) -> None:
    """One that ignores SIGXCPU."""
    code = "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    ran = subject.python(code, manifest={"max_cpu_secs": 0.5, **BACKSTOP})
    assert ran.outcome == "cpu", ran.story
    assert told(ran, "cpu"), ran.story


@pytest.mark.holds("max_cpu_secs")
def test_a_cpu_hog_split_over_children_is_stopped(subject: Subject) -> None:
    """Short-lived children: none of them ever reaches the limit."""
    code = """
import os, time
while True:
    if os.fork() == 0:
        until = time.process_time() + 0.1
        while time.process_time() < until: pass
        os._exit(0)
    os.wait()
"""
    ran = subject.python(code, manifest={"max_cpu_secs": 0.6, **BACKSTOP})
    assert ran.outcome == "cpu", ran.story


@pytest.mark.holds("max_processes")
def test_a_fork_bomb_is_stopped(subject: Subject) -> None:
    """Bounded, so that a backend without the limit survives this test."""
    code = """
import os, time
for _ in range(120):
    try:
        if os.fork() == 0:
            time.sleep(15)
            os._exit(0)
    except OSError:
        os._exit(11)
time.sleep(15)
"""
    ran = subject.python(code, manifest={"max_processes": 20, **BACKSTOP})
    # A kernel that refuses to fork is as good as being killed for it.
    assert ran.outcome == "processes" or ran.exited(11), ran.story


def test_few_processes_are_left_alone(subject: Subject) -> None:
    script = "for i in 1 2 3 4; do sleep 0.2 & done; wait; echo done"
    assert subject.shell(script, manifest={"max_processes": 20}).stdout == "done\n"


@pytest.mark.holds("max_file_bytes")
def test_a_files_size_is_limited(subject: Subject, workspace: Path) -> None:
    code = "import sys; open(sys.argv[1], 'wb').write(b'x' * 2**20)"
    manifest = {"max_file_bytes": 100_000, "fs_write_allow": [str(workspace)]}
    ran = subject.python(code, str(workspace / "large"), manifest=manifest)
    # Python ignores SIGXFSZ and sees an error; a program that does not is ended by it.
    assert not ran.exited(0), ran.story
    assert (workspace / "large").stat().st_size <= 100_000


@pytest.mark.holds("max_file_bytes")
def test_a_program_that_writes_too_much_is_reported(subject: Subject, workspace: Path) -> None:
    code = "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
    code += "open(sys.argv[1], 'wb').write(b'x' * 2**20)"
    manifest = {"max_file_bytes": 100_000, "fs_write_allow": [str(workspace)]}
    ran = subject.python(code, str(workspace / "large"), manifest=manifest)
    assert ran.outcome == "file_size", ran.story


@pytest.mark.holds("max_output_bytes")
def test_a_flood_is_cut_off(subject: Subject) -> None:
    script = "while :; do echo flood; done"
    ran = subject.shell(script, manifest={"max_output_bytes": 1000, **BACKSTOP})
    assert ran.outcome == "output_limit", ran.story
    assert ran.raw["stdout"]["bytes"] + ran.raw["stderr"]["bytes"] <= 1000
    assert ran.raw["stdout"]["truncated"]


@pytest.mark.holds("max_output_bytes")
def test_the_flood_counts_over_both_streams(subject: Subject) -> None:
    script = "while :; do echo flood; echo flood >&2; done"
    ran = subject.shell(script, manifest={"max_output_bytes": 5000, **BACKSTOP})
    assert ran.outcome == "output_limit", ran.story
    assert ran.raw["stdout"]["bytes"] + ran.raw["stderr"]["bytes"] <= 5000


LIMITS = ["max_memory_bytes", "max_cpu_secs", "max_processes", "max_file_bytes", "max_output_bytes"]
LIMITS += ["tmp_bytes", "shm_bytes"]


@pytest.mark.parametrize("field", [*LIMITS, "timeout"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_is_greater_than_zero(subject: Subject, field: str, value: int) -> None:
    with pytest.raises(RpcError) as refusal:
        subject.run("true", manifest={field: value})
    assert refusal.value.code == -32602
    assert refusal.value.field == field
