"""Detached executions: their state, a wait with a limit, and output for those who attach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.daemon import Daemon
from support.rpc import Connection, RpcError

from sandboxd.supervisor.execution.output_log import STREAM_BYTES, STREAM_PIECES, OutputLog
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.notifications import DenialSeen, Exited, Output, Progress

LONG = {"timeout": "none"}


def detached(client: Connection, *argv: str, **params: Any) -> str:
    given = {"argv": list(argv), "detach": True, "manifest": LONG, **params}
    answer = client.call("execute", given)
    return str(answer["execution_id"])


def attached(client: Connection, execution: str, **params: Any) -> tuple[dict[str, Any], str]:
    """The answer, and stdout until the execution's end."""
    answer = client.call("execution/attach", {"execution_id": execution, **params})
    client.notification("execution/exited", execution_id=execution)
    return answer, client.output(execution)


def test_the_duration_is_not_below_what_the_command_took(shared_daemon: Daemon) -> None:
    """Its start is reported some milliseconds after it: a clock that begins then is late."""
    with shared_daemon.connect() as client:
        for _ in range(3):
            execution = detached(client, "sleep", "0.1")
            result = client.call("execution/wait", {"execution_id": execution})
            assert result["duration_ms"] >= 100


def test_state_and_a_wait_with_a_limit(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as client:
        execution = detached(client, "cat", stdin_open=True)
        limited = client.call("execution/wait", {"execution_id": execution, "timeout_secs": 0})
        assert limited["state"] in ("pending", "running")
        assert "outcome" not in limited
        client.call("execution/close_stdin", {"execution_id": execution})
        result = client.call("execution/wait", {"execution_id": execution, "timeout_secs": 60})
        assert result["outcome"] == "exited"
        status = client.call("execution/status", {"execution_id": execution})
        assert (status["state"], status["result"]["exit_code"]) == ("ended", 0)


def test_another_connection_attaches_and_types(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as first:
        execution = detached(first, "sh", "-c", "echo early; cat; echo late", stdin_open=True)
    with shared_daemon.connect() as second:
        second.start("execution/attach", {"execution_id": execution, "stdin": True})
        second.call("execution/write", {"execution_id": execution, "data": "typed\n"})
        second.call("execution/close_stdin", {"execution_id": execution})
        second.call("execution/wait", {"execution_id": execution})
    with shared_daemon.connect() as third:
        answer, text = attached(third, execution)
        assert text == "early\ntyped\nlate\n"
        assert (answer["state"], answer["gap"]) == ("ended", False)


def test_nothing_is_told_before_the_answer_of_its_own_request(shared_daemon: Daemon) -> None:
    """In a batch, whose answer waits for another request, while a third one is answered."""
    with shared_daemon.connect() as client:
        ended = detached(client, "echo", "told")
        client.call("execution/wait", {"execution_id": ended})
        other = detached(client, "cat", stdin_open=True)
        asked = [("execution/attach", ended), ("execution/wait", other)]
        client.send([
            {"jsonrpc": "2.0", "id": method, "method": method, "params": {"execution_id": one}}
            for method, one in asked
        ])  # fmt: skip
        for _ in range(3):
            client.call("execution/status", {"execution_id": other})
        assert client.batches == []
        assert client.notifications == []
        client.call("execution/close_stdin", {"execution_id": other})
        client.wait_until(lambda: bool(client.batches))
        assert client.output(ended) == ""
        client.notification("execution/exited", execution_id=ended)
        assert client.output(ended) == "told\n"


def test_what_is_known_already_is_not_told_again(shared_daemon: Daemon, tmp_path: Path) -> None:
    with shared_daemon.connect() as client:
        execution = detached(client, "sh", "-c", "echo one; cat; echo two", stdin_open=True)
        client.call("execution/attach", {"execution_id": execution})
        note = client.notification("execution/output", execution_id=execution)
        assert note["data"] == "one\n"
        seq = note["seq"]
        client.call("execution/close_stdin", {"execution_id": execution})
        client.call("execution/wait", {"execution_id": execution})
    with shared_daemon.connect() as other:
        _, text = attached(other, execution, after={"stdout": seq})
        assert text == "two\n"


def test_only_the_end_of_much_output_is_kept_and_the_gap_is_said(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as client:
        script = "head -c 3000000 /dev/zero | tr '\\0' x; echo end"
        execution = detached(client, "sh", "-c", script, capture=False)
        client.call("execution/wait", {"execution_id": execution})
    with shared_daemon.connect() as other:
        answer, text = attached(other, execution)
        assert answer["gap"] is True
        assert text.endswith("end\n")
        assert len(text) <= STREAM_BYTES


def test_what_cannot_be_attached_to_is_refused(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as client:
        running = client.start("execute", {"argv": ["cat"], "stdin_open": True,
                                           "execution_id": "att-1", "manifest": LONG})  # fmt: skip
        with pytest.raises(RpcError, match="detached"):
            client.call("execution/attach", {"execution_id": "att-1"})
        client.call("execution/cancel", {"execution_id": "att-1"})
        client.answer(running)
        execution = detached(client, "sleep", "600")
        with pytest.raises(RpcError, match="not left open"):
            client.call("execution/attach", {"execution_id": execution, "stdin": True})
        client.call("execution/cancel", {"execution_id": execution})
        with pytest.raises(RpcError):
            client.call("execution/attach", {"execution_id": "no-such"})


def test_a_command_that_cannot_start_ends_the_log(shared_daemon: Daemon) -> None:
    with shared_daemon.connect() as client:
        execution = detached(client, "no-such-program-here")
        with pytest.raises(RpcError, match="cannot be executed"):
            client.call("execution/wait", {"execution_id": execution})
        answer = client.call("execution/attach", {"execution_id": execution})
        assert answer["state"] == "ended"


def test_denials_and_the_start_are_told_also_where_output_was_dropped() -> None:
    denial = Denial(
        kind="filesystem_write", operation="open", target="/etc/x", layer="mount",
        evidence="policy", confidence="high", message="", remedy={},
    )  # fmt: skip

    async def work() -> list[type[Any]]:
        log = OutputLog()
        await log.output("e", "stderr", 0, "first", "utf-8")
        log.progress("e", "image", 0, None)
        log.progress("e", "image", 1, 1)
        for seq in range(3 * STREAM_PIECES):
            await log.output("e", "stdout", seq, "x", "utf-8")
            if seq == STREAM_PIECES:
                await log.denial("e", denial)
        await log.exited("e", "exited", 0, None)
        kinds: list[type[Any]] = []
        number = 0
        while (found := await log.next_event(number)) is not None:
            number = found[0] + 1
            if not kinds or kinds[-1] is not type(found[1]):
                kinds.append(type(found[1]))
        return kinds

    assert anyio.run(work) == [Output, Progress, DenialSeen, Output, Exited]


def test_memory_of_a_log_is_bounded_also_for_tiny_pieces() -> None:
    async def fill() -> OutputLog:
        log = OutputLog()
        for seq in range(3 * STREAM_PIECES):
            await log.output("e", "stdout", seq, "x", "utf-8")
        await log.output("e", "stderr", 0, "kept", "utf-8")
        return log

    log = anyio.run(fill)
    assert log.kept_bytes <= STREAM_PIECES + 4
    assert log.lacks("stdout", -1)
    assert not log.lacks("stderr", -1)
