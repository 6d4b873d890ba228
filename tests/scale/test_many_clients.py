"""Many clients: idle ones cost nothing, busy ones each get their own correct answers."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from support.daemon import Daemon, stdout_of

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.timeout(600)]

IDLE = 1000
CLIENTS = 8
EACH = 40
POLICY = {"manifest": {"network": "deny"}}


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Room for as many connections, or no test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"the hard limit of descriptors is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("descriptors")
def test_a_thousand_idle_connections_while_another_client_works(daemon: Daemon) -> None:
    with ExitStack() as idle, daemon.connect() as busy:
        busy.call("initialize")
        others = [idle.enter_context(daemon.connect()) for _ in range(IDLE)]
        others[0].call("initialize")
        others[-1].call("initialize")  # connections are accepted one by one
        for number in range(10):
            result = busy.call("execute", {"argv": ["echo", str(number)], **POLICY})
            assert stdout_of(result) == f"{number}\n"
        status = busy.call("status")
        assert status["clients"] == IDLE + 1
        # They were not forgotten: the last one still gets an answer.
        assert stdout_of(others[-1].call("execute", {"argv": ["echo", "me"], **POLICY})) == "me\n"


def test_eight_clients_at_full_speed_get_their_own_answers(daemon: Daemon) -> None:
    """Fresh and persistent sandboxes mixed, with streams, exit codes and input told apart."""
    failures: list[BaseException] = []

    def client(number: int) -> None:
        try:
            work(daemon, number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with daemon.connect() as connection:
        status = connection.call("status")
        assert status["executions"] == 0
        assert status["sandboxes"]["persistent"] == 0


def work(daemon: Daemon, number: int) -> None:
    with daemon.connect(timeout_s=120) as connection:
        sandbox = connection.call("sandbox/create", POLICY)["sandbox"]
        for turn in range(EACH):
            place: dict[str, Any] = POLICY if turn % 2 else {"sandbox": sandbox}
            mark = f"{number}-{turn}"
            script = f"cat; echo {mark} >&2; exit {(number + turn) % 8}"
            params = {**place, "argv": ["sh", "-c", script], "stdin": f"in {mark}"}
            result = connection.call("execute", params)
            assert result["outcome"] == "exited"
            assert result["exit_code"] == (number + turn) % 8
            assert result["stdout"]["data"] == f"in {mark}"
            assert result["stderr"]["data"] == f"{mark}\n"
        connection.call("sandbox/destroy", {"sandbox": sandbox})
