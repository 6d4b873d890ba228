"""Ending a command: timeout, cancel, signals; always the whole tree, and before the answer comes.

Who is alive is told by a lock on a file in the workspace: it is held as long as a process has the
file open. A backend that works on copies tells it by the sandboxes that its server has.
"""

from __future__ import annotations

import fcntl
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support.rpc import RpcError
from support.runs import Ran
from support.subject import Subject

# Takes the lock, then goes on as the rest of the program says; children inherit the lock.
LOCK = """
import fcntl, os, signal, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
os.set_inheritable(lock.fileno(), True)
def orphan():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (1, 2, 13, 15):
                signal.signal(number, signal.SIG_IGN)
            null = os.open("/dev/null", os.O_RDWR)
            for number in range(3):
                os.dup2(null, number)
            time.sleep(60)
        os._exit(0)
    os.wait()
"""


@pytest.fixture
def lock(workspace: Path) -> Path:
    return workspace / "lock"


def held(subject: Subject, lock: Path) -> bool:
    if subject.works_on_copies:
        return subject.is_any_alive()
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def request(lock: Path, code: str, **manifest: Any) -> dict[str, Any]:
    argv = ["python3", "-I", "-S", "-c", LOCK + code, str(lock)]
    return {"argv": argv, "manifest": {"fs_write_allow": [str(lock.parent)], **manifest}}


def run(subject: Subject, lock: Path, code: str, **manifest: Any) -> Ran:
    params = request(lock, code, **manifest)
    return subject.run(*params.pop("argv"), **params)


@pytest.mark.holds("timeout")
def test_a_timeout_ends_it(subject: Subject, lock: Path) -> None:
    brief = {"secs": 0, "nanos": 300_000_000}
    ran = run(subject, lock, "time.sleep(60)", base="minimal", timeout=brief)
    assert (ran.outcome, ran.exit_code) == ("timeout", None)
    assert ran.signal in (signal.SIGTERM, signal.SIGKILL)
    if ran.enforcement["base"] != "none":  # without any sandbox nothing is denied
        assert [denial["kind"] for denial in ran.denials] == ["timeout"]
    assert not held(subject, lock)


@pytest.mark.holds("timeout")
def test_it_is_asked_politely_first(subject: Subject, lock: Path) -> None:
    code = """
def leave(*_):
    print("bye", flush=True)
    os._exit(3)
signal.signal(15, leave)
print("ready", flush=True)
time.sleep(60)
"""
    for seconds in (1, 5, 25):  # on a busy machine Python may take longer to begin
        ran = run(subject, lock, code, timeout=seconds)
        assert ran.outcome == "timeout"
        if ran.stdout:
            break
    assert ran.stdout == "ready\nbye\n"


@pytest.mark.holds("timeout")
def test_who_ignores_that_is_killed_with_all_children(subject: Subject, lock: Path) -> None:
    code = "signal.signal(15, signal.SIG_IGN)\norphan()\nwhile True: time.sleep(60)"
    ran = run(subject, lock, code, timeout=0.5)
    assert ran.outcome == "timeout"
    assert not held(subject, lock)


def test_without_a_timeout_it_runs_as_long_as_it_likes(subject: Subject) -> None:
    assert subject.shell("sleep 0.5; exit 5", manifest={"timeout": "none"}).exited(5)


def test_nothing_outlives_a_command_that_ended(subject: Subject, lock: Path) -> None:
    ran = run(subject, lock, "orphan()\nsys.exit(6)")
    assert ran.exited(6)
    assert not held(subject, lock)


def started(subject: Subject, lock: Path, code: str) -> int:
    """Sent, and the command has the lock."""
    params = request(lock, 'print("locked", flush=True)\n' + code)
    connection = subject.connection
    number = connection.start("execute", {**params, "execution_id": "e", "stream": True})
    connection.wait_until(lambda: connection.output("e") != "")
    assert held(subject, lock)
    return number


def test_cancelling_ends_the_whole_tree(subject: Subject, lock: Path) -> None:
    number = started(subject, lock, "signal.signal(15, signal.SIG_IGN)\norphan()\ntime.sleep(60)")
    subject.connection.call("execution/cancel", {"execution_id": "e"})
    assert subject.connection.result(number)["outcome"] == "cancelled"
    assert not held(subject, lock)


def test_a_cancelled_request_is_a_cancelled_command(subject: Subject, lock: Path) -> None:
    """`$/cancelRequest`, as editors' libraries send it."""
    number = started(subject, lock, "time.sleep(60)")
    subject.connection.notify("$/cancelRequest", {"id": number})
    answer = subject.connection.answer(number)
    assert "error" in answer or answer["result"]["outcome"] == "cancelled"
    assert not held(subject, lock)


@pytest.mark.parametrize("name", ["SIGINT", "SIGUSR1", 9])
def test_signals_reach_the_command(subject: Subject, lock: Path, name: str | int) -> None:
    number = started(subject, lock, "signal.signal(2, signal.SIG_DFL)\ntime.sleep(60)")
    subject.connection.call("execution/signal", {"execution_id": "e", "signal": name})
    result = subject.connection.result(number)
    expected = name if isinstance(name, int) else signal.Signals[name].value
    assert (result["outcome"], result["signal"]) == ("signaled", expected)


def test_a_client_that_leaves_takes_its_commands_along(subject: Subject, lock: Path) -> None:
    started(subject, lock, "orphan()\ntime.sleep(60)")
    subject.close()
    deadline = time.monotonic() + 30
    while held(subject, lock) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not held(subject, lock)


def test_what_has_ended_cannot_be_signalled(subject: Subject) -> None:
    assert subject.run("true", execution_id="past").exited(0)
    with pytest.raises(RpcError) as refusal:
        subject.connection.call("execution/signal", {"execution_id": "past", "signal": 15})
    assert refusal.value.kind == "NotFound"
