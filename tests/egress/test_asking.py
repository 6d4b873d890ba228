"""A host that nobody named, in a session that asks: the connection waits for an approver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from runner import Runner, denied, out
from small_internet import Net
from support.daemon import Daemon
from support.rpc import Connection
from support.sessions import connect_approver, decide, open_session, pending, trail

pytestmark = [pytest.mark.isolation, pytest.mark.requires("bubblewrap", "ip", "openssl")]
FETCH = "curl -sS --max-time 40 https://other.test/a"


@pytest.fixture
def daemon(start_in_net: Callable[..., Daemon]) -> Daemon:
    return start_in_net("ask_secs = 20")


@pytest.fixture
def approver(daemon: Daemon, net: Net) -> Iterator[Connection]:
    with connect_approver(daemon) as connection:
        yield connection


@pytest.fixture
def asking(daemon: Daemon, net: Net, approver: Connection) -> Iterator[Runner]:
    """Commands in a session that asks; that the command itself may run was approved before."""
    with daemon.connect(timeout_s=90) as connection:
        open_session(connection, mode="auto_edit", on_denial="report")
        yield Runner(connection, net)


def _start(asking: Runner, script: str, *hosts: str) -> int:
    params = {"argv": ["bash", "-c", script], "manifest": asking.manifest(*hosts)}
    return asking.connection.start("execute", params)


def _allow_command(approver: Connection, choice: str = "session") -> None:
    (shown,) = pending(approver, kinds=("execute",))
    decide(approver, shown, choice)


def test_the_connection_waits_and_goes_on_when_it_is_allowed(
    asking: Runner, approver: Connection, net: Net
) -> None:
    number = _start(asking, f"{FETCH}; {FETCH}", "example.test")
    _allow_command(approver)
    (shown,) = pending(approver, kinds=("egress",))
    assert shown["question"] == "connect to other.test at port 443?"
    assert shown["add"] == {"network": {"kind": "allow_hosts", "hosts": ["other.test:443"]}}
    before = net.connections()
    time.sleep(0.3)
    assert net.connections() == before  # nothing is sent, not even a question to a name server
    decide(approver, shown, "once")
    result: dict[str, Any] = asking.connection.result(number)
    assert out(result) == "other.test /a\nother.test /a\n", result
    number = _start(asking, FETCH, "example.test")  # once was for that execution
    (shown,) = pending(approver, kinds=("egress",))
    decide(approver, shown, "deny")
    assert denied(asking.connection.result(number))


def test_one_approval_for_many_connections_and_a_grant_for_later_ones(
    asking: Runner, approver: Connection
) -> None:
    number = _start(asking, f"{FETCH} & {FETCH} & wait", "example.test")
    _allow_command(approver)
    while (shown := pending(approver, kinds=("egress",))[0])["waiting"] < 2:
        pass
    decide(approver, shown, "session")
    assert out(asking.connection.result(number)) == "other.test /a\n" * 2
    result = asking(FETCH, "example.test")
    assert out(result) == "other.test /a\n"


def test_a_connection_that_leaves_withdraws_its_question(
    asking: Runner, approver: Connection
) -> None:
    number = _start(asking, "curl -sS --max-time 1 https://other.test/a", "example.test")
    _allow_command(approver)
    pending(approver, kinds=("egress",))
    result = asking.connection.result(number)
    resolved = approver.notification("approval/resolved", kind="egress")
    assert resolved["resolution"]["reason"] == "requester_gone"
    assert [target for target, _ in denied(result)] == ["other.test"]


@pytest.mark.parametrize(
    "script",
    [
        "curl -sS --max-time 5 http://93.184.216.34/",
        "curl -sS --max-time 5 http://169.254.169.254/",
        "curl -sS --max-time 5 https://stranger.herokuapp.com/",
    ],
)
def test_what_is_never_asked_about(
    asking: Runner, approver: Connection, daemon: Daemon, script: str
) -> None:
    number = _start(asking, script, "example.test")
    _allow_command(approver)
    result = asking.connection.result(number)
    assert result["exit_code"] != 0
    assert approver.call("approval/list", {"state": "cancelled"})["approvals"] == []
    assert approver.call("approval/list")["approvals"] == []
    while not any(record["type"] == "egress.refused" for record in trail(daemon)):
        time.sleep(0.05)


def test_without_a_session_that_asks_unknown_hosts_are_refused_at_once(
    daemon: Daemon, net: Net, approver: Connection
) -> None:
    with daemon.connect(timeout_s=90) as connection:
        result = Runner(connection, net)(FETCH, "example.test")
    assert result["exit_code"] != 0
    assert approver.call("approval/list")["approvals"] == []
