"""Hundreds of sandboxes alive at once: each is its own, each answers, and none is left over."""

from __future__ import annotations

import time
from typing import Any

import pytest
from support.daemon import Daemon, stdout_of
from support.processes import Process
from support.rpc import Connection, RpcError

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.timeout(600)]

MANY = 500
AT_ONCE = 10  # requests before the first answer is read
WARM_PROCESSES = 16  # of the eight sandboxes that a burst leaves ready, a bwrap and an init each
POLICY = {"manifest": {"network": "deny"}}


def in_turns(connection: Connection, method: str, requests: list[dict[str, Any]]) -> list[Any]:
    """The results of many requests, a few of them in flight at any time."""
    results: list[Any] = []
    for first in range(0, len(requests), AT_ONCE):
        numbers = [connection.start(method, one) for one in requests[first : first + AT_ONCE]]
        results += [connection.result(number) for number in numbers]
    return results


def few_are_left(below: list[Process]) -> bool:
    """At most those of sandboxes that wait warm for the next command."""
    deadline = time.monotonic() + 20
    while (left := sum(process.alive for process in below)) > WARM_PROCESSES:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left <= WARM_PROCESSES


def test_five_hundred_sandboxes_live_answer_and_leave_nothing(daemon: Daemon) -> None:
    with daemon.connect(timeout_s=120) as connection:
        connection.call("execute", {"argv": ["true"], **POLICY})
        made = in_turns(connection, "sandbox/create", [POLICY] * MANY)
        names = [one["sandbox"] for one in made]
        assert len(set(names)) == MANY

        listed = connection.call("sandbox/list")["sandboxes"]
        assert {one["sandbox"] for one in listed} == set(names)

        # What one writes none of the others sees: they are as many sandboxes as there are names.
        script = "test ! -e /tmp/mine && echo {0} > /tmp/mine && cat /tmp/mine"
        commands = [{"sandbox": name, "argv": ["sh", "-c", script.format(name)]} for name in names]
        answers = in_turns(connection, "execute", commands)
        assert [stdout_of(one) for one in answers] == [f"{name}\n" for name in names]

        below = daemon.descendants()
        assert len(below) >= MANY
        in_turns(connection, "sandbox/destroy", [{"sandbox": name} for name in names])
        assert connection.call("sandbox/list")["sandboxes"] == []
        with pytest.raises(RpcError):
            connection.call("execute", {"sandbox": names[0], "argv": ["true"]})
        assert few_are_left(below)
        assert stdout_of(connection.call("execute", {"argv": ["echo", "on"], **POLICY})) == "on\n"
