"""A mistake of ours in a callback ends what it belongs to; it is never passed over in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.broken_daemon import broken_options
from support.daemon import Daemon
from support.rpc import Closed, RpcError

pytestmark = [pytest.mark.requires("bubblewrap")]
StartDaemon = Callable[..., Daemon]
PRINTS = ["sh", "-c", "echo before; echo BREAK; sleep 600"]


@pytest.mark.parametrize("params", [{}, {"stream": True}, {"pty": {"rows": 24, "cols": 80}}])
def test_a_pump_that_breaks_ends_the_command(
    start_daemon: StartDaemon, params: dict[str, Any]
) -> None:
    daemon = start_daemon(**broken_options("output"))
    with daemon.connect() as client:
        with pytest.raises(RpcError) as refused:
            client.call("execute", {"argv": PRINTS, "manifest": {"timeout": "none"}, **params})
        assert refused.value.kind == "InternalError"
        assert client.call("execution/list")["executions"] == []
        assert not [p for p in daemon.descendants() if "sleep" in str(p)]
        after = client.call("execute", {"argv": ["echo", "whole"]})
        assert after["stdout"]["data"] == "whole\n"


def test_a_connection_whose_bytes_cannot_be_taken_is_closed(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(**broken_options("frames"))
    with daemon.connect() as other, daemon.connect() as client:
        client.notify("BREAK")
        with pytest.raises((Closed, ConnectionResetError)):
            client.receive()
        assert other.call("execute", {"argv": ["true"]})["exit_code"] == 0


def test_a_report_that_cannot_be_taken_ends_the_command(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(**broken_options("reports"))
    with daemon.connect() as client:
        assert client.call("execute", {"argv": ["true"]})["exit_code"] == 0
        Path(daemon.home, "break").touch()
        result = client.start("execute", {"argv": ["sleep", "1"]})
        answer = client.answer(result)
        if "result" in answer:
            assert answer["result"]["outcome"] == "isolation_lost", answer
        Path(daemon.home, "break").unlink()
        assert client.call("execute", {"argv": ["true"]})["exit_code"] == 0
