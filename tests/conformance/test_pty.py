"""A terminal of the command's own: size, line discipline, Ctrl-C."""

from __future__ import annotations

import signal

import pytest
from support.rpc import Connection
from support.subject import Subject

SIZE = "import os; print(*os.get_terminal_size(1), flush=True)"


def test_all_three_are_a_terminal_of_the_size_that_was_asked_for(subject: Subject) -> None:
    code = f"import os; print(*map(os.isatty, range(3))); {SIZE}"
    ran = subject.python(code, pty={"rows": 33, "cols": 111})
    assert ran.stdout.splitlines() == ["True True True", "111 33"]
    assert ran.raw["stderr"]["bytes"] == 0


@pytest.mark.asks("pty.stderr")
def test_stderr_can_be_apart_from_the_terminal(subject: Subject) -> None:
    """A user's `2>file` keeps what the command writes there, with a terminal for the rest."""
    code = "import os; print(*map(os.isatty, range(3))); os.write(2, b'a\\nb'); open('/dev/tty')"
    ran = subject.python(code, pty={"stderr": "pipe"})
    assert ran.stdout == "True True False\r\n"
    assert ran.raw["stderr"]["data"] == "a\nb", ran.story  # no terminal has changed it


@pytest.mark.asks("pty.stderr")
def test_what_stays_running_holds_neither_the_terminal_nor_stderr_open(subject: Subject) -> None:
    ran = subject.shell("echo out; echo err >&2; sleep 60 &", pty={"stderr": "pipe"})
    assert (ran.stdout, ran.raw["stderr"]["data"]) == ("out\r\n", "err\n"), ran.story


def test_it_is_the_controlling_terminal(subject: Subject) -> None:
    ran = subject.shell("echo typed > /dev/tty", pty={})
    assert ran.stdout == "typed\r\n", ran.story


def test_without_one_nothing_is_a_terminal(subject: Subject) -> None:
    code = "import os; print(*map(os.isatty, range(3)))"
    assert subject.python(code).stdout == "False False False\n"


def started(subject: Subject, code: str) -> tuple[Connection, int]:
    connection = subject.connection
    params = {"argv": ["python3", "-I", "-S", "-c", code], "pty": {"rows": 24, "cols": 80},
              "stream": True, "execution_id": "pty"}  # fmt: skip
    return connection, connection.start("execute", params)


def test_resizing_tells_the_command(subject: Subject) -> None:
    code = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])  # so that none is lost
print("ready", flush=True)
signal.sigwait([signal.SIGWINCH])
{SIZE}
"""
    connection, request = started(subject, code)
    connection.wait_until(lambda: "ready" in connection.output("pty"))
    connection.call("execution/resize", {"execution_id": "pty", "rows": 50, "cols": 132})
    connection.wait_until(lambda: "132 50" in connection.output("pty"))
    assert connection.result(request)["exit_code"] == 0


def test_control_c_interrupts_the_command(subject: Subject) -> None:
    code = "import signal, time; signal.signal(2, signal.SIG_DFL); print('up', flush=True)\n"
    code += "time.sleep(60)"
    connection, request = started(subject, code)
    connection.wait_until(lambda: "up" in connection.output("pty"))
    connection.call("execution/write", {"execution_id": "pty", "data": "\x03"})
    result = connection.result(request)
    assert (result["outcome"], result["signal"]) == ("signaled", signal.SIGINT)


def test_end_of_file_ends_the_input(subject: Subject) -> None:
    connection, request = started(subject, "import sys; print(sys.stdin.read().upper())")
    connection.call("execution/write", {"execution_id": "pty", "data": "typed\n"})
    connection.call("execution/close_stdin", {"execution_id": "pty"})
    assert connection.result(request)["exit_code"] == 0
    assert "TYPED" in connection.output("pty")
