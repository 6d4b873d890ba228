"""A command that is ended before it was executed has ended as asked, and was not refused.

Its cgroup forbids forks from then on, and the init may not have forked for it yet.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.backends import OTHER_WAY, running_backend
from support.daemon import Daemon
from support.rpc import Connection

pytestmark = [pytest.mark.isolation]
PATIENCE_S = 20.0
# How they are started differs.
KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "terminal": {"pty": {"rows": 24, "cols": 80}},
    "explained": {"explain": True},
    "strict": {"manifest": {"syscall_policy": "strict"}},
    "limited": {"manifest": {"max_processes": 50}},
}
SHARED_KINDS = ("usual", "terminal", "explained")


@pytest.fixture(scope="module", params=["bubblewrap", OTHER_WAY, "landlock"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with running_backend(request.param) as daemon:
        yield daemon


def is_first_in_its_namespace(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # a reaper that has just ended
        return False
    numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
    return len(numbers) > 1 and numbers[-1] == "1"


@contextmanager
def stopped_inits(daemon: Daemon) -> Iterator[None]:
    """What arrives meanwhile is read when they go on. Without a pid namespace an init that is
    stopped is killed."""
    below = [found.pid for found in daemon.descendants() if found.name == "sandboxd-init"]
    inits = [pid for pid in below if is_first_in_its_namespace(pid)]
    for pid in inits:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in inits:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def warm_up(client: Connection) -> None:
    assert client.call("execute", {"argv": ["true"]})["exit_code"] == 0
    until = time.monotonic() + PATIENCE_S
    while client.call("status")["sandboxes"]["warm"] == 0:
        assert time.monotonic() < until
        time.sleep(0.02)


def assert_cancelled(answer: Any) -> None:
    assert "result" in answer, answer
    assert answer["result"]["outcome"] == "cancelled", answer
    assert answer["result"]["denials"] == [], answer


@pytest.mark.parametrize("kind", KINDS)
def test_cancelled_at_once(daemon: Daemon, kind: str) -> None:
    with daemon.connect() as client:
        warm_up(client)  # what waits in it expects the usual command
        with stopped_inits(daemon):
            asked = client.start(
                "execute", {"argv": ["sleep", "60"], "execution_id": "early", **KINDS[kind]}
            )
            client.call("execution/cancel", {"execution_id": "early"})
        assert_cancelled(client.answer(asked))


@pytest.mark.parametrize("kind", KINDS)
def test_cancelled_at_any_moment(daemon: Daemon, kind: str) -> None:
    """Also where the init cannot be stopped."""
    with daemon.connect() as client:
        for number in range(16):
            asked = client.start(
                "execute", {"argv": ["sleep", "60"], "execution_id": "early", **KINDS[kind]}
            )
            time.sleep(number % 4 / 1000)
            client.call("execution/cancel", {"execution_id": "early"})
            assert_cancelled(client.answer(asked))


@pytest.mark.parametrize("kind", SHARED_KINDS)
def test_cancelled_in_a_persistent_sandbox(daemon: Daemon, kind: str) -> None:
    """It serves the next command."""
    with daemon.connect() as client:
        inside = {"sandbox": client.call("sandbox/create")["sandbox"]}
        try:
            for _ in range(4):
                with stopped_inits(daemon):
                    request = {"argv": ["sleep", "60"], "execution_id": "early", **KINDS[kind]}
                    asked = client.start("execute", {**request, **inside})
                    client.call("execution/cancel", {"execution_id": "early"})
                assert_cancelled(client.answer(asked))
            assert client.call("execute", {"argv": ["true"], **inside})["exit_code"] == 0
        finally:
            client.call("sandbox/destroy", inside)


def test_a_client_that_is_gone(daemon: Daemon) -> None:
    """Its command is ended, and nothing about it is an error of the daemon."""
    with daemon.connect() as other:
        with daemon.connect() as client:
            warm_up(client)
            with stopped_inits(daemon):
                client.start("execute", {"argv": ["sleep", "60"], "explain": True})
                client.call("status")
                client.close()
        assert other.call("execute", {"argv": ["true"]})["exit_code"] == 0
    assert "Traceback" not in daemon.log


def test_a_forking_command_that_is_cancelled_has_reached_no_limit(daemon: Daemon) -> None:
    """Forks are refused in order to end it; that is no denial."""
    script = "for _ in 1 2 3 4 5 6 7 8; do while :; do /bin/true; done & done; echo up; wait"
    forks = ["sh", "-c", script]
    with daemon.connect() as client:
        for number in range(4):
            name = {"execution_id": f"forks-{number}"}
            asked = client.start("execute", {"argv": forks, "stream": True, **name})
            client.notification("execution/output", **name)
            client.call("execution/cancel", name)
            assert_cancelled(client.answer(asked))
