"""Who asks cannot decide: by role, by token, by a child session, by reconnecting."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import Connection
from support.sessions import (
    approver_token,
    connect_approver,
    decide,
    error_of,
    open_session,
    pending,
)

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.isolation]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def worker(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as connection:
        yield connection


DECISION = {"approval": "ap-0", "digest": "sha256:0", "choice": "once"}


def test_a_worker_cannot_decide(worker: Connection) -> None:
    for method, params in (
        ("approval/decide", DECISION), ("grant/list", {}), ("grant/remove", {"grant": "gr-0"}),
        ("audit/verify", {}),
    ):  # fmt: skip
        error_of(lambda m=method, p=params: worker.call(m, p), "Unauthorized", reason="role")  # type: ignore[misc]


def test_a_worker_cannot_become_an_approver_even_with_the_token(
    daemon: Daemon, worker: Connection
) -> None:
    open_session(worker)
    params = {"role": "approver", "token": approver_token(daemon)}
    error_of(lambda: worker.call("events/subscribe", params), "Unauthorized", reason="role")


def test_an_approver_cannot_ask(daemon: Daemon) -> None:
    with connect_approver(daemon) as approver:
        for method, params in (
            ("execute", {"argv": ["true"]}), ("sandbox/create", {}), ("session/open", {}),
            ("session/attach", {"session": "se-0", "token": "0"}), ("session/charge", {}),
        ):  # fmt: skip
            error_of(lambda m=method, p=params: approver.call(m, p), "Unauthorized", reason="role")  # type: ignore[misc]


def test_an_approver_lists_and_ends_executions_of_all_sessions(
    daemon: Daemon, worker: Connection
) -> None:
    open_session(worker)
    number = worker.start("execute", {"argv": ["sleep", "60"], "execution_id": "theirs"})
    with connect_approver(daemon) as approver:
        while True:
            found = approver.call("execution/list")["executions"]
            if found:
                break
        assert found[0]["execution_id"] == "theirs"
        write = {"execution_id": "theirs", "data": "x"}
        error_of(lambda: approver.call("execution/write", write), "Unauthorized", reason="role")
        approver.call("execution/cancel", {"execution_id": "theirs"})
    assert worker.result(number)["outcome"] == "cancelled"


def test_the_token_is_a_private_file_and_new_at_every_start(daemon: Daemon) -> None:
    path = Path(f"{daemon.socket}.approver")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_text()) == 64
    with running_daemon() as other:
        assert approver_token(other) != approver_token(daemon)
        kept = f"{other.socket}.approver"
    assert not os.path.exists(kept)


@pytest.mark.parametrize("preset", ["read-only", "workspace-write"])
def test_no_sandbox_sees_the_token_or_the_trail(
    daemon: Daemon, worker: Connection, tmp_path: Path, preset: str
) -> None:
    token = f"{daemon.socket}.approver"
    trail = daemon.home / ".local/state/sandboxd"
    assert Path(token).read_text()  # the control: outside it can be read
    assert list(trail.glob("*/audit-*.jsonl"))
    script = f"cat {token}; ls {trail}; ls {os.path.dirname(token)}"
    manifest = {"fs_read_allow": [str(daemon.folder)]}
    params = {"argv": ["sh", "-c", script], "preset": preset, "workspace": str(tmp_path)}
    for more in ({}, {"manifest": manifest}):
        result = worker.call("execute", {**params, **more})
        assert approver_token(daemon) not in result["stdout"]["data"]
        assert "audit-" not in result["stdout"]["data"]
        assert "approver" not in result["stdout"]["data"]


def test_wrong_tokens_are_throttled() -> None:
    with running_daemon() as daemon, daemon.connect() as guesser:
        wrong = {"role": "approver", "token": "0" * 64}
        for _ in range(5):
            error_of(lambda: guesser.call("events/subscribe", wrong), "Unauthorized")
        right = {"role": "approver", "token": approver_token(daemon)}
        error = error_of(lambda: guesser.call("events/subscribe", right), "Unauthorized")
        assert error.data["reason"] == "token"


def test_an_approver_cannot_decide_for_its_own_former_session(
    daemon: Daemon, worker: Connection, tmp_path: Path
) -> None:
    """A connection without a role yet has an implicit session; it cannot decide for that."""
    worker.call("session/list")  # a neutral method gives the connection its implicit session
    worker.call("audit/query", {})
    token = {"role": "approver", "token": approver_token(daemon)}
    assert worker.call("events/subscribe", token)["role"] == "approver"
    error_of(lambda: worker.call("execute", {"argv": ["true"]}), "Unauthorized", reason="role")


def test_a_child_session_gives_no_right_to_decide(
    daemon: Daemon, worker: Connection, tmp_path: Path
) -> None:
    session = open_session(worker)
    child = open_session(worker, parent=session["session"])
    run = {
        "argv": ["touch", "made"], "preset": "workspace-write", "workspace": str(tmp_path),
        "session": child["session"],
    }  # fmt: skip
    number = worker.start("execute", run)
    with connect_approver(daemon) as approver:
        (shown,) = pending(approver)
        params = {
            "approval": shown["approval"], "digest": shown["digest"], "choice": "once",
        }  # fmt: skip
        error_of(lambda: worker.call("approval/decide", params), "Unauthorized", reason="role")
        with daemon.connect() as again:  # reconnecting with the session's token
            credentials = {"session": session["session"], "token": session["token"]}
            again.call("session/attach", credentials)
            error_of(lambda: again.call("approval/decide", params), "Unauthorized", reason="role")
        with daemon.connect() as stranger:
            error_of(
                lambda: stranger.call("approval/wait", {"approval": shown["approval"]}), "NotFound"
            )
            assert stranger.call("approval/list")["approvals"] == []
        assert [a["approval"] for a in worker.call("approval/list")["approvals"]] == [
            shown["approval"]
        ]
        decide(approver, shown, "deny")
    error_of(lambda: worker.result(number), "ApprovalDenied", reason="denied")


def test_a_replayed_decision_is_a_conflict(
    daemon: Daemon, worker: Connection, tmp_path: Path
) -> None:
    open_session(worker)
    run = {"argv": ["touch", "made"], "preset": "workspace-write", "workspace": str(tmp_path)}
    with connect_approver(daemon) as approver:
        number = worker.start("execute", run)
        (shown,) = pending(approver)
        decide(approver, shown, "once")
        assert worker.result(number)["exit_code"] == 0
        error_of(lambda: decide(approver, shown, "once"), "Conflict", reason="decided")
        number = worker.start("execute", run)
        (again,) = pending(approver)
        stale = {**again, "digest": shown["digest"]}
        if again["digest"] == shown["digest"]:  # the same request: only the id differs
            stale = {**shown, "digest": again["digest"]}
        error_of(lambda: decide(approver, stale, "once"), "Conflict")
        assert not worker.has_answered(number)
        decide(approver, again, "deny")
    error_of(lambda: worker.result(number), "ApprovalDenied")
