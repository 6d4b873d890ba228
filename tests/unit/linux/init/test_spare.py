"""The prefork: a reaper that waits for the next command, and may be harmed meanwhile."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections import Counter

import pytest
from init_driver import Init, Place, ready_init, started_init
from init_trees import tree_of
from support.processes import Process

from sandboxd.linux.init_client import messages as wire

KEEP = wire.ExecFlag.KEEP_BACKGROUND


def waiting(init: Init) -> Process:
    """The reaper, as soon as only it is there and waits."""
    deadline = time.monotonic() + 20
    while True:
        found = tree_of(init)
        if len(found) == 1 and found[0].state == "S":
            return found[0]
        assert time.monotonic() < deadline, found
        time.sleep(0.005)


def gone(init: Init, process: Process) -> None:
    deadline = time.monotonic() + 20
    while any(one.pid == process.pid for one in tree_of(init)):
        assert time.monotonic() < deadline
        time.sleep(0.005)


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


def test_the_spare_is_the_parent_of_the_command(spared: Init) -> None:
    reaper = waiting(spared)
    ended = spared.shell("echo $PPID").wait()
    assert ended.stdout.split() == [str(reaper.pid).encode()]
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]


def test_a_sandbox_for_one_command_gets_no_second_prefork(spared: Init) -> None:
    waiting(spared)
    assert spared.exec("true").wait().code == 0
    assert spared.shell("sleep 0.1").wait().code == 0
    assert tree_of(spared) == []


def test_a_sandbox_that_stays_gets_another(spared: Init) -> None:
    pids = set()
    for _ in range(5):
        pids.add(waiting(spared).pid)
        assert spared.exec("true", flags=KEEP).wait().code == 0
    assert len(pids) == 5


def test_it_serves_a_terminal_too(spared: Init) -> None:
    script = f"test -t 1 && test $PPID = {waiting(spared).pid}"
    assert spared.shell(script, flags=wire.ExecFlag.PTY | KEEP).wait().code == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_spare_that_was_killed_or_stopped_costs_nothing(
    spared: Init, number: signal.Signals
) -> None:
    harmed = waiting(spared)
    os.kill(harmed.pid, number)
    gone(spared, harmed)
    ended = spared.shell("exit 7").wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert ended.code == 7


def test_stopped_spares_do_not_pile_up(spared: Init) -> None:
    for _ in range(4):
        reaper = waiting(spared)
        os.kill(reaper.pid, signal.SIGSTOP)
        gone(spared, reaper)
        assert spared.exec("true", flags=KEEP).wait().code == 0
    waiting(spared)


def test_a_spare_killed_at_any_moment_gives_a_clear_answer(spared: Init) -> None:
    """It was killed: there is no lack of processes (EAGAIN)."""
    for _ in range(80):
        os.kill(waiting(spared).pid, signal.SIGKILL)
        ended = spared.shell("exit 7", flags=KEEP).wait()
        if ended.kinds == ["ExecFailedMessage"]:
            assert ended.only(wire.ExecFailedMessage).errno == errno.EINTR
        else:
            assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]


def held_by_spare(init: Init) -> set[str]:
    tree = tree_of(init)
    parents = {one.parent for one in tree}
    for one in tree:
        if one.name == "sandboxd-init" and one.pid not in parents:
            folder = f"/proc/{one.pid}/fd"
            with contextlib.suppress(OSError):  # it ended, or closed one of them
                return {os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)}
    return set()


def is_bare(held: set[str]) -> bool:
    """Stdio, the signals, and the socket on which the command comes."""
    kinds = Counter(one.partition(":")[0] for one in held)
    files = {one for one in held if one.startswith("/")}
    return kinds["socket"] == kinds["anon_inode"] == 1 and files <= {"/dev/null"}


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
    assert not os.path.exists(f"/proc/{left.pid}")


def test_spares_that_always_end_are_given_up(spared: Init) -> None:
    for _ in range(8):
        reaper = waiting(spared)
        os.kill(reaper.pid, signal.SIGKILL)
        gone(spared, reaper)
    time.sleep(0.05)
    assert tree_of(spared) == []
    assert spared.exec("true", flags=KEEP).wait().code == 0
    waiting(spared)
