"""A command that is alone in a pid namespace: the init looks after it, and there is no reaper."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator

import pytest
from init_driver import Init, Place, ready_init
from init_trees import tree_of
from support.processes import Process

from sandboxd.linux.init_client import messages as wire

pytestmark = pytest.mark.requires("bubblewrap")
KEEP = wire.ExecFlag.KEEP_BACKGROUND
USUAL = ["StartedMessage", "ExitedMessage", "Gone"]
LEAVING = ["StartedMessage", "ExitedMessage", "LeftMessage", "Gone"]


@pytest.fixture
def alone() -> Iterator[Init]:
    with ready_init(Place(bwrap=True)) as init:
        yield init


def waiting(init: Init, count: int) -> list[Process]:
    """The processes below the init, as soon as there are so many and all of them wait."""
    deadline = time.monotonic() + 60
    while True:
        # bwrap itself is the process that was started; its child is the init.
        found = sorted(tree_of(init), key=lambda one: one.pid)[1:]
        if len(found) == count and all(one.state == "S" for one in found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.005)


def test_no_process_waits_beside_the_init(alone: Init) -> None:
    command = alone.shell("read line; echo $PPID")
    command.started()
    waiting(alone, 1)
    ended = command.wait()
    assert (ended.stdout, ended.kinds) == (b"1\n", USUAL)
    waiting(alone, 0)


def test_a_program_that_cannot_be_executed_is_reported(alone: Init) -> None:
    for _ in range(2):
        failed = alone.exec("/no/such/program").wait().only(wire.ExecFailedMessage)
        assert failed.stage is wire.ExecStage.EXEC
        assert (failed.errno, failed.path) == (errno.ENOENT, "/no/such/program")
        failed = alone.exec("true", cwd="/no/such/folder").wait().only(wire.ExecFailedMessage)
        assert failed.stage is wire.ExecStage.CHDIR
    assert alone.exec("true").wait().code == 0


def test_a_command_that_may_leave_processes_behind_has_a_reaper(alone: Init) -> None:
    for _ in range(2):
        ended = alone.shell("echo $PPID", flags=KEEP).wait()
        assert ended.stdout != b"1\n"
        waiting(alone, 1)  # the reaper of the next one


def test_a_second_command_beside_it_has_a_reaper(alone: Init) -> None:
    first = alone.shell("read line; exit 3")
    first.started()
    second = alone.shell("echo $PPID; sleep 600 & exit 4").wait()
    assert (second.code, second.kinds) == (4, LEAVING)
    assert second.stdout != b"1\n"
    assert first.wait().code == 3


def test_what_it_leaves_behind_ends_with_it(alone: Init) -> None:
    ended = alone.shell("setsid sleep 600 & (sleep 600 &) & exit 5").wait()
    assert (ended.code, ended.kinds) == (5, LEAVING)
    waiting(alone, 0)


def test_its_usage_is_that_of_its_tree(alone: Init) -> None:
    burn = "import os, time\nwhile time.process_time() < .2: pass\n"
    ended = alone.python(f"{burn}if not os.fork():\n time.sleep(.01)\n{burn}os.wait()").wait()
    used = ended.only(wire.Gone).usage
    assert used.user_us + used.system_us >= 0.2e6
