"""Finding a delegated cgroup, from recorded texts, and entering one, for real where there is v2.

Limits that the kernel holds need its memory and pids controllers: those tests run in a virtual
machine (`make test-vm`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.linux.mountinfo import parse

sys.path.insert(0, str(Path(__file__).parents[1] / "init"))

from init_driver import Command, Init, Place, ready_init
from support.processes import processes_below, survivors

from sandboxd.linux.cgroup import tree as cgroup_tree
from sandboxd.linux.cgroup.cgroups import Cgroups
from sandboxd.linux.cgroup.command_limits import CommandCgroup
from sandboxd.linux.cgroup.limited_sandbox import _tiers, _without
from sandboxd.linux.cgroup.tree import NotDelegated, folder_of, own_cgroup, parse_counts
from sandboxd.linux.init_client import messages as wire
from sandboxd.policy.plan import Limits

HYBRID = """\
12:pids:/user.slice/user-1000.slice/session-1.scope
1:name=systemd:/user.slice/user-1000.slice/session-1.scope
0::/user.slice/user-1000.slice/session-1.scope
"""
UNIFIED_MOUNT = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID_MOUNTS = """\
30 29 0:27 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory
31 29 0:28 / /sys/fs/cgroup/unified rw shared:6 - cgroup2 cgroup2 rw
"""
CONTAINER_MOUNT = (
    "500 499 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"
)


def test_the_line_of_v2_is_the_one_that_counts():
    assert own_cgroup(HYBRID) == "/user.slice/user-1000.slice/session-1.scope"
    assert own_cgroup("3:memory:/x\n") is None
    assert own_cgroup("0::/a:b c\n") == "/a:b c"


@pytest.mark.parametrize(
    ("mounts", "cgroup", "folder"),
    [
        (UNIFIED_MOUNT, "/system.slice/x.service", "/sys/fs/cgroup/system.slice/x.service"),
        (UNIFIED_MOUNT, "/", "/sys/fs/cgroup"),
        (HYBRID_MOUNTS, "/x", "/sys/fs/cgroup/unified/x"),
        (CONTAINER_MOUNT, "/docker/abc/y", "/sys/fs/cgroup/y"),
        (CONTAINER_MOUNT, "/docker/abcd", None),
        ("", "/x", None),
    ],
)
def test_the_folder_is_found_through_the_mounts(mounts: str, cgroup: str, folder: str | None):
    assert folder_of(cgroup, parse(mounts)) == folder


def made_folder(tmp_path: Path, *, controllers: str, procs: str) -> str:
    (tmp_path / "cgroup.controllers").write_text(controllers)
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "cgroup.procs").write_text(procs)
    return str(tmp_path)


def test_a_folder_without_controllers_is_of_no_use(tmp_path: Path):
    folder = made_folder(tmp_path, controllers="cpuset cpu io", procs=f"{os.getpid()}\n")
    refused = cgroup_tree.why_not(folder)
    assert refused is not None
    assert "controller" in refused.reason


def test_without_systemd_being_alone_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cgroup_tree, "SYSTEMD", str(tmp_path / "missing"))
    folder = made_folder(tmp_path, controllers="memory pids", procs=f"{os.getpid()}\n")
    assert cgroup_tree.why_not(folder) is None
    made_folder(tmp_path, controllers="memory pids", procs=f"1\n{os.getpid()}\n")
    refused = cgroup_tree.why_not(folder)
    assert refused is not None
    assert "other processes" in refused.reason


def test_systemd_must_tell_root_that_it_delegated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cgroup_tree, "SYSTEMD", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    folder = made_folder(tmp_path, controllers="memory pids", procs=f"{os.getpid()}\n")
    refused = cgroup_tree.why_not(folder)
    assert refused is not None
    assert "Delegate=yes" in refused.reason
    os.setxattr(folder, "user.delegate", b"1")
    assert cgroup_tree.why_not(folder) is None


def test_managers_of_users_do_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cgroup_tree, "SYSTEMD", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    folder = made_folder(tmp_path, controllers="memory pids", procs=f"{os.getpid()}\n")
    assert cgroup_tree.why_not(folder) is None
    made_folder(tmp_path, controllers="memory pids", procs=f"1\n{os.getpid()}\n")
    assert cgroup_tree.why_not(folder) is not None


def test_events_are_numbers_by_name():
    text = "low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n"
    assert parse_counts(text)["oom_group_kill"] == 1
    assert parse_counts("max max\n\nodd\n") == {}


def test_only_what_the_cgroup_does_not_hold_is_left_to_rlimits():
    limits = Limits(memory_bytes=1, cpu_s=2.0, processes=3, file_bytes=4, output_bytes=5)
    assert dict(_tiers(limits, frozenset({"memory"}), False)) == {
        "max_memory_bytes": "enforced",
        "max_cpu_secs": "best_effort",
        "max_processes": "best_effort",
    }
    assert _without(limits, frozenset({"memory", "cpu"})) == Limits(
        processes=3, file_bytes=4, output_bytes=5
    )


# The kernel's own: v2 without controllers can still be entered, counted and killed.


def v2_folder() -> str | None:
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        return folder_of("/", parse(file.read()))


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    root = v2_folder()
    if root is None or not os.access(root, os.W_OK):
        pytest.skip("no cgroup v2 hierarchy that this user can write to")
    home = Path(root) / f"sandboxd-test-{os.getpid()}"
    home.mkdir()
    found = Cgroups(str(home), frozenset())
    yield found
    deadline = time.monotonic() + 30
    while any(p.is_dir() for p in home.iterdir()) and time.monotonic() < deadline:
        found.close()
    home.rmdir()


@pytest.fixture
def init() -> Iterator[Init]:
    with ready_init(Place()) as ready:
        yield ready


def run_in(init: Init, cgroup: CommandCgroup, script: str) -> Command:
    flags = wire.ExecFlag.HAS_CGROUP
    return init.exec("/bin/sh", "-c", script, filter_fd=cgroup.entrance, flags=flags)


@pytest.mark.requires("root")
def test_the_command_and_what_it_starts_are_in_the_cgroup(cgroups: Cgroups, init: Init):
    cgroup = cgroups.make(Limits())
    assert cgroup is not None
    ended = run_in(init, cgroup, "grep ^0:: /proc/self/cgroup; ls /proc/self/fd").wait()
    assert b"/command-" in ended.stdout.splitlines()[0]
    assert ended.stdout.splitlines()[1:5] == [b"0", b"1", b"2", b"3"]
    cgroups.let_go(cgroup)


@pytest.mark.requires("root")
def test_killing_it_kills_everybody_in_it(cgroups: Cgroups, init: Init):
    cgroup = cgroups.make(Limits())
    assert cgroup is not None
    command = run_in(init, cgroup, "setsid sleep 1000 & exec sleep 1000")
    command.started()
    started = [p for p in processes_below(init.process.pid) if p.name in ("sleep", "sh")]
    assert started
    cgroup.kill()
    assert command.wait().signal == 9
    assert not survivors(started)
    cgroups.let_go(cgroup)


@pytest.mark.requires("root")
def test_cpu_time_counts_those_who_have_ended(cgroups: Cgroups, init: Init):
    cgroup = cgroups.make(Limits(cpu_s=0.05))
    assert cgroup is not None
    assert cgroup.held == {"cpu"}
    assert cgroup.exceeded() is None
    script = "for i in 1 2 3 4; do (i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done) & done; wait"
    run_in(init, cgroup, script).wait()
    assert cgroup.exceeded() == "cpu"
    cgroups.let_go(cgroup)


@pytest.mark.requires("root")
def test_a_cgroup_that_cannot_be_entered_fails_the_command(cgroups: Cgroups, init: Init):
    cgroup = cgroups.make(Limits())
    assert cgroup is not None
    cgroup.close_entrance()
    assert cgroup.remove()
    null = os.open("/dev/full", os.O_WRONLY)
    try:
        flags = wire.ExecFlag.HAS_CGROUP
        failed = init.exec("/bin/true", filter_fd=null, flags=flags).wait()
    finally:
        os.close(null)
    assert failed.only(wire.ExecFailedMessage).stage == wire.ExecStage.CGROUP


def test_a_subtree_that_is_gone_means_the_best_effort(tmp_path: Path):
    gone = Cgroups(str(tmp_path / "gone"), frozenset({"memory"}))
    assert gone.make(Limits(memory_bytes=1)) is None


def test_this_machine_is_judged_without_an_error():
    found = cgroup_tree.find()
    assert isinstance(found, (str, NotDelegated))
