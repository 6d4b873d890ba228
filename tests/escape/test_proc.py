"""/proc: other processes through their files, and the kernel's own switches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.attacks import Box, Victim, freely, python, weakest
from support.bystander import SECRET, Bystander

pytestmark = pytest.mark.isolation

ROOT = os.geteuid() == 0
CONTAINS = python("""
    worked() if args[1].encode() in open(args[0], "rb").read() else blocked("other content")
""")
OPEN_FOR_WRITING = python("os.open(args[0], os.O_WRONLY); worked()")


def test_modes_in_proc_are_not_changed(box: Box) -> None:
    """They are those of every /proc of the machine. Root's technique; SECURITY.md names the
    backends that do not stop it."""
    attack = python("""
        import stat
        path = "/proc/execdomains"
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))
        worked()
    """)
    assert freely(attack).worked == ROOT
    if box.backend == "bubblewrap":
        assert box.attack(attack).blocked


@pytest.mark.parametrize("through", ["root", "cwd"])
def test_folders_of_a_host_process_do_not_lead_outside(
    box: Box, host_process: Bystander, victim: Victim, through: str
) -> None:
    """/proc/PID/root and /proc/PID/cwd of a process outside."""
    path = f"/proc/{host_process.pid}/cwd/victim"
    if through == "root":
        path = f"/proc/{host_process.pid}/root{victim}"
    assert freely(CONTAINS, path, Victim.ORIGINAL).worked
    assert box.attack(CONTAINS, path, Victim.ORIGINAL).blocked


def test_environment_of_a_host_process_is_not_readable(box: Box, host_process: Bystander) -> None:
    """/proc/PID/environ."""
    path = f"/proc/{host_process.pid}/environ"
    assert freely(CONTAINS, path, SECRET).worked
    assert box.attack(CONTAINS, path, SECRET).blocked


def test_memory_file_of_a_host_process_is_not_readable(box: Box, host_process: Bystander) -> None:
    """/proc/PID/mem at the address of a secret."""
    attack = python("""
        fd = os.open(f"/proc/{args[0]}/mem", os.O_RDWR)
        data = os.pread(fd, 64, int(args[1]))
        worked() if args[2].encode() in data else blocked("other content")
    """)
    args = (host_process.pid, host_process.address, SECRET)
    assert freely(attack, *args).worked
    assert box.attack(attack, *args).blocked


def test_descriptor_of_a_host_process_is_not_reopened(box: Box, host_process: Bystander) -> None:
    """/proc/PID/fd/N: a file that has no name any more."""
    path = f"/proc/{host_process.pid}/fd/{host_process.descriptor}"
    assert freely(CONTAINS, path, SECRET).worked
    assert box.attack(CONTAINS, path, SECRET).blocked


def test_maps_of_a_host_process_are_not_readable(box: Box, host_process: Bystander) -> None:
    """/proc/PID/maps: where everything lies, which is half of an exploit."""
    path = f"/proc/{host_process.pid}/maps"
    assert freely(CONTAINS, path, "[stack]").worked
    assert box.attack(CONTAINS, path, "[stack]").blocked


def test_core_pattern_is_not_writable(box: Box) -> None:
    """core_pattern: a line in it runs a program as root on the host. Opened only, never written."""
    path = "/proc/sys/kernel/core_pattern"
    assert freely(OPEN_FOR_WRITING, path).worked == ROOT
    assert box.attack(OPEN_FOR_WRITING, path).blocked
    assert box.attack(OPEN_FOR_WRITING, path, manifest={}).blocked


def test_sysrq_trigger_is_not_writable(box: Box) -> None:
    """One letter to sysrq-trigger restarts the machine. Opened only, never written."""
    path = "/proc/sysrq-trigger"
    # Without CONFIG_MAGIC_SYSRQ there is nothing to protect.
    assert freely(OPEN_FOR_WRITING, path).worked == (ROOT and Path(path).exists())
    assert box.attack(OPEN_FOR_WRITING, path).blocked
    assert box.attack(OPEN_FOR_WRITING, path, manifest={}).blocked


def test_no_switch_of_the_kernel_in_proc_is_writable(box: Box) -> None:
    """Every file of /proc that belongs to no process, opened for writing. Nothing is written."""
    attack = python("""
        found = []
        for name in os.listdir("/proc"):
            top = "/proc/" + name
            if name.isdigit() or os.path.islink(top) or name == "thread-self":
                continue
            files = [top] if os.path.isfile(top) else [
                os.path.join(at, file) for at, _, names in os.walk(top) for file in names]
            for path in files:
                try:
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                    found.append(path)
                except OSError:
                    pass
        worked(len(found), *found[:5]) if found else blocked("none")
    """)
    assert freely(attack).worked
    for manifest in ({}, {"base": "host"}):
        inside = box.attack(attack, manifest=manifest)
        assert inside.blocked, inside.words


def test_kernel_memory_is_not_readable(box: Box) -> None:
    """/proc/kcore: the memory of the whole machine as one file."""
    attack = python("worked() if os.read(os.open('/proc/kcore', os.O_RDONLY), 4) else blocked()")
    # Without CONFIG_PROC_KCORE there is nothing to protect.
    assert freely(attack).worked == (ROOT and Path("/proc/kcore").exists())
    assert box.attack(attack).blocked


def test_oom_score_of_a_host_process_is_not_changed(box: Box, host_process: Bystander) -> None:
    """/proc/PID/oom_score_adj: make the kernel kill another process first."""
    attack = python("""
        with open(f"/proc/{args[0]}/oom_score_adj", "w") as file:
            file.write("999")
        worked()
    """)
    score = Path(f"/proc/{host_process.pid}/oom_score_adj")
    before = score.read_text()
    assert freely(attack, host_process.pid).worked
    changed = score.read_text()
    assert changed != before
    assert box.attack(attack, host_process.pid).blocked
    assert score.read_text() == changed


@pytest.mark.parametrize("manifest", [weakest(), weakest(fs_read_allow=["/sys"])])
def test_cgroups_of_the_host_are_not_readable(box: Box, manifest: dict[str, Any]) -> None:
    """Which services, containers and sandboxes there are, and their members."""
    attack = python("""
        found = os.listdir("/sys/fs/cgroup")
        worked(found) if found else blocked("empty")
    """)
    assert freely(attack).worked
    assert box.attack(attack, manifest=manifest).blocked
