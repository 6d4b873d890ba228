"""A command that is stopped between its fork and its exec: its reaper waits for it, no init."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator

import pytest
from init_driver import Init
from init_trees import tree_of, wait_for_output

from sandboxd.linux.init_client import messages as wire

KEEP = wire.ExecFlag.KEEP_BACKGROUND
PATIENCE_S = 20.0


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """In the place of a cgroup: the child waits until somebody reads."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    try:
        while True:
            os.write(theirs, bytes(4096))
    except BlockingIOError:
        os.set_blocking(theirs, True)
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def starting(init: Init) -> int:
    """The pid of the child that has not executed its program, as soon as it waits."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        tree = tree_of(init)
        waiting = {one.pid for one in tree if one.state == "D"}  # in vfork
        for one in tree:
            if one.parent in waiting and one.state == "S":
                return one.pid
        assert time.monotonic() < deadline, tree
        time.sleep(0.005)


def test_only_that_command_is_harmed(init: Init, full_pipe: tuple[int, int]) -> None:
    other = init.shell("echo up; read line; exit 3", flags=KEEP)
    wait_for_output(other, b"up")
    flags = KEEP | wire.ExecFlag.HAS_CGROUP
    held = init.exec("true", filter_fd=full_pipe[1], flags=flags)
    os.kill(starting(init), signal.SIGSTOP)
    ended = held.wait()
    assert ended.kinds == ["ExecFailedMessage"]
    assert ended.only(wire.ExecFailedMessage).errno == errno.EINTR
    assert init.exec("true", flags=KEEP).wait().code == 0
    assert other.wait().code == 3


def test_one_that_waits_and_is_not_stopped_is_left_alone(
    init: Init, full_pipe: tuple[int, int]
) -> None:
    other = init.shell("read line; exit 3", flags=KEEP)
    other.started()
    held = init.exec("true", filter_fd=full_pipe[1], flags=KEEP | wire.ExecFlag.HAS_CGROUP)
    starting(init)
    time.sleep(0.2)  # the init looks several times
    os.read(full_pipe[0], 1 << 16)
    assert held.wait().code == 0
    assert other.wait().code == 3


def test_a_program_that_stops_itself_at_once_is_left_alone(init: Init) -> None:
    command = init.shell("kill -STOP $$; exit 5", flags=KEEP)
    command.started()
    deadline = time.monotonic() + PATIENCE_S
    stopped: list[int] = []
    while not stopped:
        assert time.monotonic() < deadline
        stopped = [one.pid for one in tree_of(init) if one.state == "T"]
        time.sleep(0.005)
    time.sleep(0.2)  # the init looks several times
    os.kill(stopped[0], signal.SIGCONT)
    assert command.wait().code == 5
