"""cgroup v1: which hierarchy may be used, from recorded texts; and its limits, for real as root."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import verdict_of
from support.outer_limit import OuterLimit, run_within

from sandboxd.linux.cgroup import v1 as cgroup_v1
from sandboxd.linux.cgroup.cgroups import Cgroups
from sandboxd.linux.cgroup.sandbox_process_limit import (
    OWN_PROCESSES,
    PROCESSES_PER_COMMAND,
    SandboxCgroup,
)
from sandboxd.linux.cgroup.tree import NotDelegated
from sandboxd.linux.init_client.rlimits import ProcessCount, present_tasks, rlimits
from sandboxd.linux.mountinfo import parse
from sandboxd.policy.limits import DEFAULT_PROCESSES
from sandboxd.policy.plan import Limits

OWN_CGROUPS = """\
9:name=systemd:/
8:pids:/
4:memory:/manager/job-1
2:cpu,cpuacct:/
0::/
"""
MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
CONTAINER = "39 31 0:36 /docker/abc /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"


def test_the_hierarchy_is_found_by_its_controller() -> None:
    assert cgroup_v1.own_cgroup(OWN_CGROUPS, "pids") == "/"
    assert cgroup_v1.own_cgroup(OWN_CGROUPS, "memory") == "/manager/job-1"
    assert cgroup_v1.own_cgroup(OWN_CGROUPS, "cpuacct") == "/"
    assert cgroup_v1.own_cgroup("0::/pids\n", "pids") is None
    assert cgroup_v1.mount_of(parse(MOUNTS), "pids") == ("/", "/sys/fs/cgroup/pids")
    assert cgroup_v1.mount_of(parse(CONTAINER), "pids") == ("/docker/abc", "/sys/fs/cgroup/pids")
    assert cgroup_v1.mount_of(parse(MOUNTS), "memory") is None


@pytest.mark.parametrize(
    ("cgroup", "root", "ours"),
    [
        ("/", "/", True),
        ("/docker/abc", "/docker/abc", True),
        ("/system.slice/x.service", "/", False),
        ("/docker/abc/job", "/docker/abc", False),
        ("/elsewhere", "/docker/abc", False),
    ],
)
def test_a_cgroup_of_a_manager_is_left_alone(
    tmp_path: Path, cgroup: str, root: str, ours: bool
) -> None:
    found = cgroup_v1.usable(cgroup, root, str(tmp_path))
    assert found == str(tmp_path) if ours else isinstance(found, NotDelegated)


def nproc(limits: Limits, counts: ProcessCount, *, shared: bool = False) -> int | None:
    for limit in rlimits(limits, counts, shared=shared):
        if limit.resource == 6:
            return limit.hard
    return None


def test_rlimit_nproc_is_above_what_is_counted_already() -> None:
    limits = Limits(processes=10)
    assert nproc(limits, "root") is None
    assert nproc(limits, "namespace") == 74
    least = present_tasks() // 2
    assert (nproc(limits, "user") or 0) > 74 + least
    assert (nproc(limits, "namespace", shared=True) or 0) > 74 + least
    assert nproc(Limits(default_processes=5), "namespace") == 69
    assert nproc(Limits(processes=9, default_processes=5), "namespace") == 73
    assert nproc(Limits(), "user") is None


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    folder = cgroup_v1.find()
    if isinstance(folder, NotDelegated):
        pytest.skip(folder.reason)
    base = cgroup_v1.make_base(folder)
    assert isinstance(base, str)
    found = Cgroups(base, frozenset({"pids"}), v2=False)
    yield found
    found.close()
    assert not Path(base).exists()


FORKS = """
import os, sys, time
made = 0
try:
    for made in range(200):
        if os.fork() == 0:
            time.sleep(0.5); os._exit(0)
except BlockingIOError:
    print("blocked", made); sys.exit(43)
print("worked"); sys.exit(42)
"""


def made(cgroups: Cgroups) -> SandboxCgroup:
    cgroup = cgroups.make_for_sandbox()
    assert cgroup is not None
    return cgroup


def run_in(cgroup: SandboxCgroup) -> tuple[bool, str]:
    enter = f'echo 0 > {cgroup.folder}/cgroup.procs && exec "$@"'
    limit = OuterLimit(("sh", "-c", enter, "sh"))
    verdict = verdict_of(run_within(limit, ["python3", "-I", "-S", "-c", FORKS]))
    return verdict.worked, verdict.words


@pytest.mark.requires("root")
def test_the_kernel_refuses_forks_beyond_the_limit(cgroups: Cgroups) -> None:
    cgroup = made(cgroups)
    try:
        assert run_in(cgroup)[0]
        cgroup.admit(20)
        worked, words = run_in(cgroup)
        assert not worked
        assert int(words) <= 20 + OWN_PROCESSES + PROCESSES_PER_COMMAND
        assert cgroup.forks_refused() > 0
    finally:
        cgroups.let_go(cgroup)


@pytest.mark.requires("root")
def test_the_limit_is_that_of_all_commands_together(cgroups: Cgroups) -> None:
    cgroup = made(cgroups)
    limit = Path(cgroup.folder) / "pids.max"
    assert int(limit.read_text()) == OWN_PROCESSES + PROCESSES_PER_COMMAND + DEFAULT_PROCESSES
    cgroup.admit(20)
    cgroup.admit(30)
    assert int(limit.read_text()) == OWN_PROCESSES + 2 * PROCESSES_PER_COMMAND + 50
    cgroup.admit(None)
    assert limit.read_text() == "max\n"
    for number in (None, 20, 30):
        cgroup.release(number)
    cgroup.admit(7)
    assert int(limit.read_text()) == OWN_PROCESSES + PROCESSES_PER_COMMAND + 7
    cgroup.refuse_forks()
    assert int(limit.read_text()) == 0
    cgroups.let_go(cgroup)


@pytest.mark.requires("root")
def test_a_cgroup_is_used_again_when_it_is_empty(cgroups: Cgroups) -> None:
    """As if it were new: its limit, and what is counted."""
    cgroup = made(cgroups)
    cgroup.admit(20)
    run_in(cgroup)
    assert cgroup.forks_refused() > 0
    with subprocess.Popen(["sleep", "600"]) as held:
        Path(cgroup.folder, "cgroup.procs").write_text(str(held.pid))
        cgroups.let_go(cgroup)
        other = made(cgroups)
        assert other.folder != cgroup.folder
        assert Path(cgroup.folder, "pids.max").read_text() == "0\n"
        held.kill()
    deadline = time.monotonic() + 60
    while not cgroup.is_empty():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    again = made(cgroups)
    assert again.folder == cgroup.folder
    assert (
        int(Path(again.folder, "pids.max").read_text())
        == OWN_PROCESSES + PROCESSES_PER_COMMAND + DEFAULT_PROCESSES
    )
    assert again.forks_refused() == 0
    for one in (again, other):
        cgroups.let_go(one)


@pytest.mark.requires("root")
def test_what_a_killed_daemon_left_is_removed(cgroups: Cgroups) -> None:
    folder = cgroup_v1.find()
    assert isinstance(folder, str)
    left = Path(folder) / f"{cgroup_v1.PREFIX}4194305-test"
    (left / "sandbox-1").mkdir(parents=True)
    held = cgroup_v1.hold(str(left))  # by a daemon whose pid is not seen here
    for gone in (False, True):
        base = cgroup_v1.make_base(folder)
        assert isinstance(base, str)
        cgroup_v1.remove_tree(base)
        assert left.exists() is not gone
        if not gone:
            os.close(held)
