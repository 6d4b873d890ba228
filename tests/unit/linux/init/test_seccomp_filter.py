"""The filter that is passed is the filter that holds, and it comes last."""

from __future__ import annotations

import errno
import os
import platform
import signal
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from init_driver import Init

from sandboxd.linux.init_client import codec
from sandboxd.linux.init_client import messages as wire

UNAME, SETSID, EXECVE = {
    "x86_64": (63, 112, 59),
    "aarch64": (160, 157, 221),
}[platform.machine()]
ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def instruction(code: int, jump_true: int, jump_false: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, jump_true, jump_false, value)


def deny(number: int, answer: int) -> bytes:
    """Load the call's number; if it is `number`, answer so; else allow."""
    return b"".join(
        (
            instruction(0x20, 0, 0, 0),
            instruction(0x15, 0, 1, number),
            instruction(0x06, 0, 0, answer),
            instruction(0x06, 0, 0, ALLOW),
        )
    )


@contextmanager
def program(content: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.fileno()


def run(init: Init, script: str, content: bytes) -> tuple[int | None, int | None]:
    with program(content) as fd:
        ended = init.python(script, filter_fd=fd, flags=wire.ExecFlag.HAS_FILTER).wait()
    return ended.code, ended.signal


def test_a_denied_call_gets_its_errno(init: Init) -> None:
    script = "import os, sys\ntry: os.uname()\nexcept OSError as e: sys.exit(e.errno)"
    assert run(init, script, deny(UNAME, ERRNO | 88)) == (88, None)
    assert init.python(script).wait().code == 0


def test_death_by_the_filter_is_sigsys_and_not_159(init: Init) -> None:
    script = "import os; os.uname()"
    assert run(init, script, deny(UNAME, KILL_PROCESS)) == (None, signal.SIGSYS)


def test_the_filter_does_not_have_to_allow_our_own_steps(init: Init) -> None:
    assert run(init, "raise SystemExit(3)", deny(SETSID, KILL_PROCESS)) == (3, None)


def test_a_filter_that_denies_execve_is_a_failed_exec(plain_init: Init) -> None:
    with program(deny(EXECVE, ERRNO | errno.EPERM)) as fd:
        command = plain_init.exec("true", filter_fd=fd, flags=wire.ExecFlag.HAS_FILTER)
        failed = command.wait().only(wire.ExecFailedMessage)
    assert (failed.stage, failed.errno) == (wire.ExecStage.EXEC, errno.EPERM)


def test_a_filter_that_kills_at_execve_shows_as_its_signal(plain_init: Init) -> None:
    """From outside, this death and one just after execve are the same."""
    with program(deny(EXECVE, KILL_PROCESS)) as fd:
        ended = plain_init.exec("true", filter_fd=fd, flags=wire.ExecFlag.HAS_FILTER).wait()
    assert ended.kinds == ["StartedMessage", "ExitedMessage", "Gone"]
    assert ended.signal == signal.SIGSYS


@pytest.mark.parametrize(
    "content",
    [b"", deny(UNAME, ALLOW)[:-1], instruction(0x06, 0, 0, ALLOW) * 4097, b"\xff" * 8],
    ids=["empty", "cut", "long", "garbage"],
)
def test_what_is_no_filter_runs_nothing(init: Init, content: bytes) -> None:
    with program(content) as fd:
        ended = init.exec("true", filter_fd=fd, flags=wire.ExecFlag.HAS_FILTER).wait()
    assert ended.kinds == ["ExecFailedMessage"]
    assert ended.only(wire.ExecFailedMessage).stage == wire.ExecStage.SECCOMP


def test_the_longest_filter_loads(plain_init: Init) -> None:
    longest = instruction(0x06, 0, 0, ALLOW) * codec.FILTER_MAX
    assert run(plain_init, "raise SystemExit(5)", longest) == (5, None)


def test_a_filter_on_a_pipe_runs_nothing(plain_init: Init) -> None:
    reader, writer = os.pipe()
    try:
        flags = wire.ExecFlag.HAS_FILTER
        ended = plain_init.exec("true", filter_fd=reader, flags=flags).wait()
    finally:
        os.close(reader)
        os.close(writer)
    assert ended.only(wire.ExecFailedMessage).errno == errno.EINVAL
