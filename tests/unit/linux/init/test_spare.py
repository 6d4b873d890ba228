"""The prefork: a reaper and a child that wait for the next command, and may be harmed meanwhile."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from init_driver import Init, Place, ready_init, started_init
from init_trees import tree_of
from support.processes import Process

from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.linux.seccomp.filters import filter_descriptor

KEEP = wire.ExecFlag.KEEP_BACKGROUND
AHEAD = wire.ExecFlag.FILTER_AHEAD
USUAL = wire.SetupFlag.HAS_FILTER | wire.SetupFlag.PREFORK


def waiting(init: Init) -> list[Process]:
    """Reaper and child, in this order, as soon as only they are there and both wait.

    A child that is stopped right after its fork does not end with its reaper yet.
    """
    deadline = time.monotonic() + 20
    while True:
        found = sorted(tree_of(init), key=lambda one: one.pid)
        asleep = all(one.state == "S" for one in found)
        if asleep and len(found) == 2 and found[1].parent == found[0].pid:
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
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]


def test_a_sandbox_for_one_command_gets_no_second_prefork(spared: Init) -> None:
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
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert ended.code == 7


def test_stopped_spares_do_not_pile_up(spared: Init) -> None:
    for _ in range(4):
        both = waiting(spared)
        for one in reversed(both):
            with contextlib.suppress(ProcessLookupError):  # its reaper was quicker
                os.kill(one.pid, signal.SIGSTOP)
        for one in both:
            gone(spared, one)
        assert spared.exec("true", flags=KEEP).wait().code == 0
    waiting(spared)


def test_a_spare_killed_at_any_moment_gives_a_clear_answer(spared: Init) -> None:
    """It was killed: there is no lack of processes (EAGAIN)."""
    for number in range(80):
        os.kill(waiting(spared)[number % 2].pid, signal.SIGKILL)
        ended = spared.shell("exit 7", flags=KEEP).wait()
        if ended.kinds == ["ExecFailedMessage"]:
            assert ended.only(wire.ExecFailedMessage).errno == errno.EINTR
        else:
            assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]


def held_by_spare(init: Init) -> set[str]:
    for one in tree_of(init):
        if one.name == "sandboxd-init" and one.parent != init.process.pid:
            folder = f"/proc/{one.pid}/fd"
            with contextlib.suppress(OSError):  # it ended, or closed one of them
                return {os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)}
    return set()


def is_bare(held: set[str]) -> bool:
    """Stdio, the pipe that says how far it came, and the socket on which the command comes."""
    kinds = Counter(one.partition(":")[0] for one in held)
    files = {one for one in held if one.startswith("/")}
    return kinds["socket"] == kinds["pipe"] == 1 and files <= {"/dev/null"}


@pytest.mark.isolation
@pytest.mark.requires("root")  # it is not dumpable: nobody else may look
def test_a_spare_holds_nothing_of_others(spared: Init) -> None:
    """Neither the control socket nor another command's channel or output."""
    running = spared.shell("sleep 600", flags=KEEP)
    running.started()
    deadline = time.monotonic() + 20
    # Right after the fork it has what the init has.
    while not is_bare(theirs := held_by_spare(spared)):
        assert time.monotonic() < deadline, theirs
    running.send(wire.Kill())
    running.wait()


def test_the_spare_ends_with_the_sandbox(spared: Init) -> None:
    left = waiting(spared)
    assert spared.close() == 0
    for one in left:
        assert not os.path.exists(f"/proc/{one.pid}")


def test_spares_that_always_end_are_given_up(spared: Init) -> None:
    for _ in range(8):
        reaper, _ = waiting(spared)
        os.kill(reaper.pid, signal.SIGKILL)
        gone(spared, reaper)
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
        for filter_fd, from_prefork in turns:
            _, child = waiting(init)
            given = filtered if filter_fd is not None else {"flags": KEEP | AHEAD}
            command = init.shell(f"echo $$; {script}", filter_fd=filter_fd, **given)
            ended = command.wait()
            pid, found, number = ended.stdout.split()
            assert (int(pid) == child.pid) is from_prefork
            assert found == b"Seccomp_filters:"
            # One more than we have ourselves, once, whoever loaded it.
            ours = own_filters()
            assert int(number) - ours == (0 if filter_fd is None else 1)
