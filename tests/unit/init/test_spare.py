"""The spare: a keeper and a child that wait for the next command, and may be harmed meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from init_driver import Init, Place, ready_init, started_init
from init_trees import tree_of
from support.processes import Process

from sandboxd.linux import init_wire as wire
from sandboxd.linux.filters import filter_descriptor
from sandboxd.linux.seccomp import FilterSpec

KEEP = wire.ExecFlag.KEEP_BACKGROUND
AHEAD = wire.ExecFlag.FILTER_AHEAD
USUAL = wire.SetupFlag.HAS_FILTER | wire.SetupFlag.SPARE


def waiting(init: Init) -> list[Process]:
    """Keeper and child, in this order, as soon as both are there and only they are."""
    deadline = time.monotonic() + 20
    while True:
        found = sorted(tree_of(init), key=lambda one: one.pid)
        if len(found) == 2 and found[1].parent == found[0].pid:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.005)


def gone(init: Init, process: Process) -> None:
    deadline = time.monotonic() + 20
    while any(one.pid == process.pid for one in tree_of(init)):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def own_filters() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Seccomp_filters"))


@pytest.fixture
def spared() -> Init:
    with ready_init(Place()) as init:
        yield init


def test_there_is_none_unless_it_is_permitted() -> None:
    with started_init(Place()) as init:
        assert isinstance(init.setup(), wire.Ready)
        assert init.exec("true", flags=KEEP).wait().code == 0
        assert init.shell("sleep 0.1", flags=KEEP).wait().code == 0
        assert tree_of(init) == []


def test_a_command_is_what_the_spare_was(spared: Init) -> None:
    _, child = waiting(spared)
    ended = spared.shell("echo $$").wait()
    assert ended.stdout.split() == [str(child.pid).encode()]
    assert ended.kinds == ["Started", "Exited", "Gone"]


def test_a_sandbox_for_one_command_gets_no_second_spare(spared: Init) -> None:
    waiting(spared)
    assert spared.exec("true").wait().code == 0
    assert spared.shell("sleep 0.1").wait().code == 0
    assert tree_of(spared) == []


def test_a_sandbox_that_stays_gets_another(spared: Init) -> None:
    pids = set()
    for _ in range(5):
        _, child = waiting(spared)
        pids.add(child.pid)
        assert spared.exec("true", flags=KEEP).wait().code == 0
    assert len(pids) == 5


@pytest.mark.parametrize(
    ("which", "number"),
    [(0, signal.SIGKILL), (1, signal.SIGKILL), (0, signal.SIGSTOP), (1, signal.SIGSTOP)],
)
def test_a_spare_that_was_killed_or_stopped_costs_nothing(
    spared: Init, which: int, number: int
) -> None:
    harmed = waiting(spared)[which]
    os.kill(harmed.pid, number)
    gone(spared, harmed)
    ended = spared.shell("exit 7").wait()
    assert ended.kinds == ["Started", "Exited", "Gone"]
    assert ended.code == 7


def test_stopped_spares_do_not_pile_up(spared: Init) -> None:
    for _ in range(4):
        both = waiting(spared)
        for one in reversed(both):
            with contextlib.suppress(ProcessLookupError):  # its keeper was quicker
                os.kill(one.pid, signal.SIGSTOP)
        for one in both:
            gone(spared, one)
        assert spared.exec("true", flags=KEEP).wait().code == 0
    waiting(spared)


def test_a_spare_killed_at_any_moment_gives_a_clear_answer(spared: Init) -> None:
    for _ in range(40):
        os.kill(waiting(spared)[1].pid, signal.SIGKILL)
        command = spared.shell("exit 7", flags=KEEP)
        assert command.wait().kinds in (["Started", "Exited", "Gone"], ["ExecFailed"])
        os.kill(waiting(spared)[0].pid, signal.SIGKILL)
        command = spared.shell("exit 7", flags=KEEP)
        assert command.wait().kinds in (["Started", "Exited", "Gone"], ["ExecFailed"])


@pytest.mark.isolation
@pytest.mark.requires("root")  # it is not dumpable: nobody else may look
def test_a_spare_holds_nothing_of_others(spared: Init) -> None:
    """Neither the control socket nor another command's channel or output."""
    running = spared.shell("sleep 600", flags=KEEP)
    running.started()
    theirs: set[str] = set()
    deadline = time.monotonic() + 20
    while not theirs:
        assert time.monotonic() < deadline
        for one in tree_of(spared):
            if one.name == "sandboxd-init" and one.parent not in (spared.process.pid,):
                folder = f"/proc/{one.pid}/fd"
                theirs = {os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)}
    # Its stdio, the pipe that says how far it came, and the socket on which the command comes.
    assert len([one for one in theirs if one.startswith("socket:")]) == 1, theirs
    assert len([one for one in theirs if one.startswith("pipe:")]) == 1, theirs
    assert {one for one in theirs if one.startswith("/")} <= {"/dev/null"}, theirs
    running.send(wire.Kill())
    running.wait()


def test_the_spare_ends_with_the_sandbox(spared: Init) -> None:
    left = waiting(spared)
    assert spared.close() == 0
    for one in left:
        assert not os.path.exists(f"/proc/{one.pid}")


def test_spares_that_always_end_are_given_up(spared: Init) -> None:
    for _ in range(8):
        keeper, _ = waiting(spared)
        os.kill(keeper.pid, signal.SIGKILL)
        gone(spared, keeper)
    time.sleep(0.05)
    assert tree_of(spared) == []
    assert spared.exec("true", flags=KEEP).wait().code == 0
    waiting(spared)


@pytest.mark.requires("seccomp")
def test_a_filter_loaded_ahead_is_only_used_for_the_same(tmp_path: Path) -> None:
    usual = filter_descriptor(FilterSpec(level="baseline", restrict_families=True))
    other = filter_descriptor(FilterSpec(level="baseline", restrict_families=False))
    assert usual is not None
    assert other is not None
    script = "grep -E '^Seccomp_filters' /proc/self/status; mount -t tmpfs x /mnt && umount /mnt"
    filtered = {"flags": wire.ExecFlag.HAS_FILTER | KEEP | AHEAD}
    with started_init(Place()) as init:
        assert isinstance(init.setup(usual, flags=USUAL), wire.Ready)
        turns = ((usual, True), (other, False), (other, True), (None, False), (None, True))
        for filter_fd, from_spare in turns:
            _, child = waiting(init)
            given = filtered if filter_fd is not None else {"flags": KEEP | AHEAD}
            command = init.shell(f"echo $$; {script}", filter_fd=filter_fd, **given)
            ended = command.wait()
            pid, found, number = ended.stdout.split()
            assert (int(pid) == child.pid) is from_spare
            assert found == b"Seccomp_filters:"
            # One more than we have ourselves, once, whoever loaded it.
            ours = own_filters()
            assert int(number) - ours == (0 if filter_fd is None else 1)
