"""A command's whole tree: what it leaves behind, signals to it, its end, and the daemon's end."""

from __future__ import annotations

import os
import signal
import time

import pytest
from init_driver import Init, Place, ready_init
from init_trees import DAEMONIZE, sleepers, tree_of, wait_for_output, wait_for_sleepers
from support.processes import process, survivors

from sandboxd.linux.init_client import messages as wire

BACKGROUND = wire.ExecFlag.KEEP_BACKGROUND


def test_an_orphan_ends_with_the_command(init: Init) -> None:
    command = init.python(DAEMONIZE + "input()")
    wait_for_output(command, b"orphan")
    watched = wait_for_sleepers(init, 2)
    ended = command.wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "LeftMessage", "Gone"]
    assert ended.code in (0, 1)
    assert survivors(watched, within_s=0) == []


def test_keep_background_leaves_it_running_until_it_ends(init: Init) -> None:
    command = init.shell("sleep 600 & echo $!", flags=BACKGROUND)
    command.started()
    assert isinstance(command.receive(), wire.ExitedMessage)
    (left,) = wait_for_sleepers(init, 1)
    init.shell(f"kill {command.ended().stdout.decode()}").wait()
    assert command.wait().kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert not left.alive


def test_keep_background_ends_with_kill(init: Init) -> None:
    command = init.python(DAEMONIZE, flags=BACKGROUND)
    command.started()
    assert isinstance(command.receive(), wire.ExitedMessage)
    watched = wait_for_sleepers(init, 1)
    command.send(wire.Kill())
    assert isinstance(command.receive(), wire.Gone)
    assert survivors(watched, within_s=0) == []


def test_kill_ends_a_tree_that_ignores_everything(init: Init) -> None:
    command = init.shell("trap '' TERM INT HUP; sleep 600 & setsid sleep 600 & echo up; wait")
    wait_for_output(command, b"up")
    command.send(wire.Kill())
    ended = command.wait()
    assert ended.signal == signal.SIGKILL
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert sleepers(init) == []


def test_a_kill_at_any_moment_has_an_end(init: Init) -> None:
    for number in range(30):
        command = init.shell("sleep 600 & sleep 600")
        time.sleep(number / 10000)
        command.send(wire.Kill())
        ended = command.wait()
        assert ended.kinds in (["ExecFailedMessage"], ["StartedMessage", "ExitedMessage", "Gone"])
    assert sleepers(init) == []


def test_many_commands_at_once_keep_their_own_ends(init: Init) -> None:
    commands = [init.shell(f"sleep 0.0{number % 5}; exit {number}") for number in range(60)]
    assert [command.wait().code for command in commands] == list(range(60))


def test_closing_the_channel_kills(init: Init) -> None:
    command = init.python(DAEMONIZE + "time.sleep(600)")
    wait_for_output(command, b"orphan")
    watched = wait_for_sleepers(init, 2)
    command.channel.close()
    assert survivors(watched) == []
    assert init.exec("true").wait().code == 0


def test_a_signal_to_main_reaches_its_group_only(init: Init) -> None:
    script = """
import os, signal, sys, time
def say(*_):
    print(name, "got it", flush=True)
    os._exit(5)
signal.signal(signal.SIGUSR1, say)
name = "main"
if os.fork() == 0:
    name = "member"
elif os.fork() == 0:
    os.setpgid(0, 0)
    name = "stranger"
print(name, "up", flush=True)
time.sleep(600)
"""
    command = init.python(script, flags=BACKGROUND)
    for name in (b"main", b"member", b"stranger"):
        wait_for_output(command, name + b" up")
    command.send(wire.Signal(number=signal.SIGUSR1))
    wait_for_output(command, b"main got it")
    wait_for_output(command, b"member got it")
    assert b"stranger got it" not in command.ended().stdout
    command.send(wire.Signal(number=signal.SIGUSR1, scope=wire.SignalScope.TREE))
    wait_for_output(command, b"stranger got it")
    assert command.wait().code == 5


def test_a_signal_to_the_group_after_main_has_ended_reaches_what_is_left(init: Init) -> None:
    command = init.shell("sleep 600 & setsid sleep 601 & exit 0", flags=BACKGROUND)
    command.started()
    assert isinstance(command.receive(), wire.ExitedMessage)
    wait_for_sleepers(init, 2)
    command.send(wire.Signal(number=signal.SIGTERM))
    wait_for_sleepers(init, 1)
    command.send(wire.Signal(number=signal.SIGTERM, scope=wire.SignalScope.TREE))
    assert command.wait().kinds[-1] == "Gone"


def test_what_one_command_does_to_its_tree_leaves_another_alone(init: Init) -> None:
    other = init.shell("read line; exit 9")
    other.started()
    victim = init.shell("sleep 600")
    victim.started()
    victim.send(wire.Kill())
    assert victim.wait().signal == signal.SIGKILL
    assert other.wait().code == 9


def test_the_daemons_end_is_everybodys_end(place: Place) -> None:
    with ready_init(place) as init:
        first = init.python(DAEMONIZE + "time.sleep(600)")
        wait_for_output(first, b"orphan")
        second = init.shell("trap '' TERM HUP; sleep 600 & echo up; sleep 600")
        wait_for_output(second, b"up")
        wait_for_sleepers(init, 4)
        watched = tree_of(init)
        init.control.close()
        init.process.wait(30)
        assert survivors(watched) == []


def test_a_killed_init_takes_its_commands_along() -> None:
    """Without a pid namespace the kernel does not do it: the reapers notice."""
    with ready_init(Place()) as init:
        command = init.python(DAEMONIZE + "time.sleep(600)")
        wait_for_output(command, b"orphan")
        wait_for_sleepers(init, 2)
        watched = tree_of(init)
        init.process.kill()
        assert command.wait().kinds == ["StartedMessage", "ExitedMessage", "Gone"]
        assert survivors(watched) == []


BOMB = """
import os
print("up", flush=True)
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
# Every process hands over to a child and ends: none stays long enough to be listed twice. At the
# limit, where the ended ones are not reaped yet, it tries again.
RUNNER = """
import os
for _ in range(20):
    if os.fork() == 0:
        break
print("up", flush=True)
while True:
    try:
        if os.fork() != 0:
            os._exit(0)
    except BlockingIOError:
        pass
"""


@pytest.mark.parametrize("script", [BOMB, RUNNER], ids=["bomb", "runner"])
@pytest.mark.parametrize("bwrap", [False, True], ids=["plain", "bwrap"])
def test_a_fork_bomb_does_not_outrun_kill(script: str, bwrap: bool) -> None:
    """RLIMIT_NPROC is only there so that the machine survives; it does not hold for root."""
    place = Place(bwrap=bwrap, unprivileged=os.geteuid() == 0)
    safety = wire.Rlimit(resource=6, soft=300, hard=300)
    with ready_init(place) as init:
        command = init.python(script, rlimits=[safety], flags=BACKGROUND)
        wait_for_output(command, b"up")
        time.sleep(0.3)
        command.send(wire.Kill())
        ended = command.wait()
        assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
        reaperless = [found for found in tree_of(init) if found.name == "python3"]
        assert reaperless == []


def test_sigterm_from_a_command_does_not_end_the_sandbox(init: Init) -> None:
    script = "kill -TERM $PPID $(cut -d' ' -f4 /proc/$PPID/stat) || exit 1; sleep 0.1; exit 4"
    assert init.shell(script, flags=wire.ExecFlag.KEEP_BACKGROUND).wait().code == 4
    assert init.shell("kill -TERM $PPID || exit 1; sleep 0.1; exit 4").wait().code == 4
    assert init.exec("true").wait().code == 0


def test_sigterm_from_the_parent_ends_the_sandbox() -> None:
    with ready_init(Place()) as init:
        init.shell("sleep 600").started()
        watched = tree_of(init)
        init.process.terminate()
        assert init.process.wait(30) == 0
        assert survivors(watched) == []
        assert process(init.process.pid) is None
