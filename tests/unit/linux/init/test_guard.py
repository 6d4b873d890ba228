"""Where there is no pid namespace, a guard sees to it that nothing outlives the sandbox."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest
from init_driver import Init, Place, ready_init, started_init
from support.processes import Process, process, processes_below, survivors

from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.landlock import RulesetSpec, build_ruleset, kernel_abi

GUARD = wire.SetupFlag.GUARD


def below(init: Init, *, name: str) -> list[Process]:
    return [p for p in processes_below(init.process.pid) if p.name.startswith(name)]


def sleeping(init: Init) -> list[Process]:
    """Two processes of a command, one of them in a session of its own."""
    init.shell("setsid sleep 1000 & exec sleep 1000").started()
    deadline = time.monotonic() + 30
    while len(found := below(init, name="sleep")) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(found) == 2
    return found


def test_the_init_is_a_child_of_the_guard():
    with started_init(Place()) as init:
        answer = init.setup(flags=GUARD)
        assert isinstance(answer, wire.Ready)
        assert answer.pid != init.process.pid
        child = process(answer.pid)
        assert child is not None
        assert child.parent == init.process.pid


def test_commands_run_and_the_sandbox_ends_with_its_socket():
    with ready_init(Place(), flags=GUARD) as init:
        assert init.shell("exit 7").wait().code == 7
        left = sleeping(init)
        assert init.close() == 0
        assert not survivors(left)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_signalled_init_ends_the_sandbox(number: int):
    with ready_init(Place(), flags=GUARD) as init:
        left = sleeping(init)
        (real,) = [p for p in below(init, name="sandboxd-init") if p.parent == init.process.pid]
        os.kill(real.pid, number)
        assert init.process.wait(30) != 0
        assert not survivors(left)


def test_init_and_reaper_killed_together_leave_no_orphan():
    with ready_init(Place(), flags=GUARD) as init:
        left = sleeping(init)
        ours = [p.pid for p in below(init, name="sandboxd-init")]
        assert len(ours) == 2
        for pid in reversed(ours):  # the reaper first: the init could not take over in between
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        init.process.wait(30)
        assert not survivors(left)


def test_without_a_guard_they_do_leave_one():
    """The control: what the guard is there for."""
    with ready_init(Place()) as init:
        left = sleeping(init)
        for one in [*below(init, name="sandboxd-init")]:
            os.kill(one.pid, signal.SIGKILL)
        os.kill(init.process.pid, signal.SIGKILL)
        init.process.wait(30)
        alive = survivors(left, within_s=0.5)
        for one in alive:
            os.kill(one.pid, signal.SIGKILL)
        assert alive


@pytest.mark.requires("landlock")
@pytest.mark.isolation
def test_a_command_can_signal_the_init_and_not_the_guard():
    if kernel_abi() < 6:
        pytest.skip("signals are not scoped before Landlock ABI 6")
    spec = RulesetSpec(write=("/",), scope_signal=True)
    flags = GUARD | wire.SetupFlag.HAS_RULESET
    with started_init(Place()) as init, build_ruleset(spec, kernel_abi()) as ruleset:
        answer = init.setup(ruleset.fileno(), flags=flags)
        assert isinstance(answer, wire.Ready)
        tried = f"kill -0 {answer.pid} && ! kill -0 {init.process.pid}"
        ended = init.shell(tried).wait()
        assert ended.code == 0, ended.stderr
