"""A command that kills its own reaper gains nothing: it still ends, and its end is reported."""

from __future__ import annotations

import signal

import pytest
from init_driver import Init, Place, ready_init
from init_trees import DAEMONIZE, sleepers, wait_for_output, wait_for_sleepers
from support.processes import survivors

from sandboxd.linux.init_client import messages as wire

# The reaper is the parent of the command's main process.
KILL_REAPER = "kill -9 $PPID; "


@pytest.mark.parametrize("how", ["-9", "-STOP"])
def test_the_exact_status_is_reported_without_a_reaper(init: Init, how: str) -> None:
    ended = init.shell(f"kill {how} $PPID; sleep 0.1; exit 7").wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert ended.code == 7
    assert init.exec("true").wait().code == 0


def test_a_signal_is_reported_without_a_reaper(init: Init) -> None:
    ended = init.shell(KILL_REAPER + "kill -9 $$").wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert ended.signal == signal.SIGKILL


def test_rusage_is_reported_without_a_reaper(plain_init: Init) -> None:
    script = "import os, time; os.kill(os.getppid(), 9)\nwhile time.process_time() < .3: pass"
    ended = plain_init.python(script).wait()
    used = ended.only(wire.ExitedMessage).usage
    assert used.user_us + used.system_us >= 0.3e6
    tree = ended.only(wire.Gone).usage
    assert tree.user_us + tree.system_us >= 0.3e6


@pytest.mark.requires("bubblewrap")
def test_kill_everything_ends_only_what_it_may() -> None:
    """In a pid namespace only: `kill -9 -1` elsewhere is the end of the tests."""
    with ready_init(Place(bwrap=True)) as init:
        script = "import os; os.fork() or os.kill(-1, 9); os._exit(7)"
        ended = init.python(script).wait()
        assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
        assert ended.code == 7
        assert init.exec("true").wait().code == 0


def test_orphans_end_with_main(init: Init) -> None:
    command = init.python(DAEMONIZE + "os.kill(os.getppid(), 9); input()")
    wait_for_output(command, b"orphan")
    watched = wait_for_sleepers(init, 2)
    ended = command.wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "LeftMessage", "Gone"]
    assert survivors(watched, within_s=0) == []


def test_orphans_end_with_the_channel(init: Init) -> None:
    command = init.python(DAEMONIZE + "os.kill(os.getppid(), 9); time.sleep(600)")
    wait_for_output(command, b"orphan")
    watched = wait_for_sleepers(init, 2)
    command.channel.close()
    assert survivors(watched) == []
    assert init.exec("true").wait().code == 0


def test_kill_and_signal_are_answered_by_the_init(init: Init) -> None:
    command = init.shell(
        KILL_REAPER + "trap 'echo usr1' USR1; trap '' TERM; echo up; while :; do sleep 0.1; done"
    )
    wait_for_output(command, b"up")
    command.send(wire.Signal(number=signal.SIGUSR1))
    wait_for_output(command, b"usr1")
    command.send(wire.Kill())
    ended = command.wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert ended.signal == signal.SIGKILL


def test_other_commands_are_left_alone(init: Init) -> None:
    kept = init.shell("read line; exit 3")
    kept.started()
    also_adopted = init.shell(KILL_REAPER + "echo up; read line; exit 4")
    wait_for_output(also_adopted, b"up")
    assert init.shell(KILL_REAPER + "sleep 600 & exit 5").wait().code == 5
    assert also_adopted.wait().code == 4
    assert kept.wait().code == 3


def test_background_of_a_command_without_a_reaper_ends_with_main(init: Init) -> None:
    flags = wire.ExecFlag.KEEP_BACKGROUND
    command = init.shell(KILL_REAPER + "sleep 600 & exit 6", flags=flags)
    ended = command.wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert sleepers(init) == []


def test_a_background_process_that_kills_the_reaper_later(init: Init) -> None:
    script = "(read line; kill -9 $PARENT; sleep 600) <&0 & exit 6"
    command = init.shell(f"PARENT=$PPID; {script}", flags=wire.ExecFlag.KEEP_BACKGROUND)
    command.started()
    assert isinstance(command.receive(), wire.ExitedMessage)
    ended = command.wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert sleepers(init) == []


def test_limits_hold_without_a_reaper(init: Init) -> None:
    script = KILL_REAPER + "while :; do :; done"
    ended = init.shell(script, tree_cpu_us=200_000).wait()
    assert ended.kinds == ["StartedMessage", "Limit", "ExitedMessage", "Gone"]
    assert ended.only(wire.Limit).kind == wire.LimitKind.CPU
