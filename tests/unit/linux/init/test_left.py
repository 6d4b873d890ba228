"""What a command leaves when it ends: processes that were killed with it are reported."""

from __future__ import annotations

import pytest
from init_driver import Init
from init_trees import wait_for_output

from sandboxd.linux.init_client import messages as wire

USUAL = ["StartedMessage", "ExitedMessage", "Gone"]


def test_what_is_killed_with_its_command_is_reported(init: Init) -> None:
    ended = init.shell("sleep 600 & setsid tail -f /dev/null & sleep 0.1").wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "LeftMessage", "Gone"]
    left = ended.only(wire.LeftMessage)
    assert (left.count, sorted(left.names)) == (2, ["sleep", "tail"])


def test_of_many_a_few_names_are_reported(init: Init) -> None:
    script = """
import os, time
named = os.pipe()
for number in range(9):
    if os.fork() == 0:
        open("/proc/self/comm", "w").write(f"n{number}" + "x" * 40)
        os.write(named[1], b".")
        time.sleep(600)
for number in range(9):
    os.read(named[0], 1)
"""
    left = init.python(script).wait().only(wire.LeftMessage)
    assert left.count == 9
    assert len(left.names) == 4
    assert {len(name) for name in left.names} == {15}


@pytest.mark.parametrize(
    "line",
    [
        "true",
        "sleep 600 & kill -9 $!; wait",
        "yes | head -1 > /dev/null",
        # Their input ends with the main process, and so do they.
        "mkfifo $F; cat < $F > /dev/null & exec 3> $F; rm $F; echo x >&3",
        "(exit 0) & (exit 1) & exit 7",
    ],
)
def test_what_ends_by_itself_is_not_reported(init: Init, line: str) -> None:
    named = "F=$(mktemp -u); " if "$F" in line else ""
    assert init.shell(named + line).wait().kinds == USUAL


def test_what_the_daemon_ends_is_not_reported(init: Init) -> None:
    command = init.shell("sleep 600 & echo up; wait")
    wait_for_output(command, b"up")
    command.send(wire.Kill())
    assert command.wait().kinds == USUAL


def test_what_a_limit_ends_is_not_reported(init: Init) -> None:
    kinds = init.shell("sleep 600 & wait", wall_ms=200).wait().kinds
    assert kinds == ["StartedMessage", "Limit", "ExitedMessage", "Gone"]


def test_what_the_terminal_hangs_up_is_reported(init: Init) -> None:
    """The kernel sends it SIGHUP when the command ends."""
    started = 'until read name < /proc/$!/comm && [ "$name" = sleep ]; do :; done'
    ended = init.shell(f"sleep 600 & {started}", flags=wire.ExecFlag.PTY).wait()
    assert ended.only(wire.LeftMessage) == wire.LeftMessage(1, ("sleep",))


def test_what_stays_is_not_reported(init: Init) -> None:
    command = init.shell("sleep 600 &", flags=wire.ExecFlag.KEEP_BACKGROUND)
    command.started()
    assert isinstance(command.receive(), wire.ExitedMessage)
    command.send(wire.Kill())
    assert isinstance(command.receive(), wire.Gone)
