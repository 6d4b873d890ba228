"""Sessions over the raw client: open one, decide as approver, look into the trail."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.daemon import Daemon
from support.rpc import PATIENCE_S, Connection, RpcError

Message = dict[str, Any]
ASKED = ("execute", "sandbox", "session", "widen", "egress")


def approver_token(daemon: Daemon) -> str:
    return Path(f"{daemon.socket}.approver").read_text()


def connect_approver(daemon: Daemon) -> Connection:
    """A connection that may decide."""
    connection = daemon.connect()
    connection.call("initialize", {"client": {"name": "editor", "version": "1"}})
    params = {"role": "approver", "token": approver_token(daemon), "types": ["nothing"]}
    assert connection.call("events/subscribe", params)["role"] == "approver"
    return connection


def open_session(connection: Connection, **params: Any) -> Message:
    session: Message = connection.call("session/open", params)
    return session


def decide(
    approver: Connection, approval: Message, choice: str, message: str | None = None
) -> Message:
    params = {"approval": approval["approval"], "digest": approval["digest"], "choice": choice}
    if message is not None:
        params["message"] = message
    decided: Message = approver.call("approval/decide", params)
    return decided


def pending(
    approver: Connection, number: int = 1, *, kinds: tuple[str, ...] = ASKED
) -> list[Message]:
    """The approvals of these kinds that wait, as soon as there are so many."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline, "no approval of this kind waits"
        listed = approver.call("approval/list")["approvals"]
        found: list[Message] = [one for one in listed if one["kind"] in kinds]
        if len(found) >= number:
            return found


def error_of(call: Callable[[], Any], kind: str, **facts: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        call()
    error = caught.value
    assert error.kind == kind, (error.kind, error.message, error.data)
    assert facts.items() <= error.data.items(), error.data
    return error


def answer_error(answer: Message, kind: str, **facts: Any) -> Message:
    """The data of an error answer that must be of this kind."""
    assert "error" in answer, answer
    data: Message = answer["error"]["data"]
    assert data["kind"] == kind, answer
    assert facts.items() <= data.items(), answer
    return data


def trail(daemon: Daemon) -> list[Message]:
    """The records on disk, oldest first."""
    folder = daemon.home / ".local" / "state" / "sandboxd"
    files = sorted(folder.glob("*/audit-*.jsonl"), key=lambda p: int(p.stem.split("-")[1]))
    lines = [line for file in files for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def types_of(records: list[Message], **where: Any) -> list[str]:
    return [r["type"] for r in records if where.items() <= r.items()]
