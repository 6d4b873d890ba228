"""A daemon that is killed at every step of an approval, and the one that takes its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, restarted, running_daemon
from support.rpc import PATIENCE_S
from support.sessions import (
    connect_approver,
    decide,
    error_of,
    open_session,
    pending,
    trail,
    types_of,
)

from sandboxd.audit.trail import open_trail
from sandboxd.audit.verify_chain import verify
from sandboxd.config.config import AuditConfig

pytestmark = pytest.mark.requires("bubblewrap")


def _run(workspace: Path, step: str) -> dict[str, Any]:
    script = f"touch {step}; sleep 60" if step == "running" else f"touch {step}"
    return {
        "argv": ["sh", "-c", script], "preset": "workspace-write", "workspace": str(workspace),
        "execution_id": step,
    }  # fmt: skip


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _kill_at(daemon: Daemon, workspace: Path, step: str) -> None:
    with daemon.connect() as worker, connect_approver(daemon) as approver:
        open_session(worker)
        number = worker.start("execute", _run(workspace, step))
        (shown,) = pending(approver)
        if step == "deciding":
            decision = {"approval": shown["approval"], "digest": shown["digest"], "choice": "once"}
            approver.start("approval/decide", decision)
            _until(lambda: "allowed" in str(trail(daemon)[-1]))
            return daemon.kill()
        decide(approver, shown, "once")
        if step == "spawn":
            _until(lambda: "execution.started" in types_of(trail(daemon), execution_id=step))
        elif step == "running":
            _until((workspace / step).exists)
        elif step == "ended":
            assert worker.result(number)["exit_code"] == 0
        return daemon.kill()


# A daemon that is killed while the question waits is in test_approvals.
STEPS = ("deciding", "spawn", "running", "ended")


def test_a_daemon_killed_at_each_step_leaves_a_whole_trail(workspace: Path) -> None:
    """One state for all of them: each daemon goes on with the chain of the one before."""
    with running_daemon() as first:
        _kill_at(first, workspace, STEPS[0])
        for step in STEPS[1:]:
            with restarted(first) as daemon, connect_approver(daemon) as approver:
                assert approver.call("approval/list")["approvals"] == []
                assert approver.call("execution/list")["executions"] == []
                _kill_at(daemon, workspace, step)
        folder = str(next((first.home / ".local/state/sandboxd").glob("*/lock")).parent)
        open_trail(folder, AuditConfig()).close()  # as the next daemon would
        assert verify(folder).ok
        records = trail(first)
    assert [r["seq"] for r in records] == list(range(1, len(records) + 1))
    for step in STEPS:
        _check(records, step, ran=(workspace / step).exists())


def _check(records: list[dict[str, Any]], step: str, *, ran: bool) -> None:
    """What ran was allowed and recorded before; what was open is closed as lost."""
    mine = [r for r in records if r["execution_id"] == step]
    states = [r["data"].get("state") for r in mine if r["type"] == "approval.resolved"]
    assert states == ["allowed"], (step, mine)
    types = types_of(mine)
    assert not ran or "execution.started" in types, (step, types)
    if "execution.started" in types:
        assert types.index("approval.resolved") < types.index("execution.started")
        assert types[-1] in ("execution.ended", "execution.lost"), (step, types)
    if step in ("running", "ended"):
        assert ran
        assert types[-1] == "execution.lost" or step == "ended"


def test_a_name_outlives_killed_daemons(workspace: Path, tmp_path: Path) -> None:
    """Its restrictions come back for everybody, its grants for the owner of its token."""
    outside = tmp_path / "outside"
    outside.mkdir()
    write = {"argv": ["touch", str(outside / "made")], "on_denial": "report"}
    reach = {"argv": ["true"], "manifest": {"network": "inherit"}}
    named = {"name": "kept", "mode": "auto_edit", "workspace": str(workspace)}
    with running_daemon() as first:
        with first.connect() as worker, connect_approver(first) as approver:
            token = open_session(worker, **named)["token"]
            worker.call("session/charge", {"tokens_in": 7, "cost_usd": 0.25})
            worker.call("execute", {**write, "on_denial": "offer"})
            decide(approver, pending(approver)[0], "session")
            number = worker.start("execute", reach)
            decide(approver, pending(approver)[0], "deny_session")
            error_of(lambda: worker.result(number), "ApprovalDenied", reason="denied")
            first.kill()
        with restarted(first) as second:
            with second.connect() as worker:
                again = open_session(worker, **{**named, "mode": "force"})
                assert (again["resumed"], again["mode"]) == (True, "auto_edit")
                assert (again["usage"]["tokens_in"], again["usage"]["cost_usd"]) == (7, 0.25)
                assert worker.call("execute", write)["exit_code"] != 0
                error_of(
                    lambda: worker.call("execute", reach), "ApprovalDenied", reason="remembered"
                )
                worker.call("session/close")
            with second.connect() as worker, connect_approver(second) as approver:
                owner = open_session(worker, **named, token=token)
                assert owner["token"] == token
                assert worker.call("execute", write)["exit_code"] == 0
                worker.call("session/update", {"plan": True})
                approver.call("session/update", {"plan": True})  # the whole daemon
                second.kill()
        with restarted(first) as third, third.connect() as worker:
            error_of(lambda: worker.call("execute", reach), "ApprovalDenied", reason="plan")
            assert open_session(worker, **named)["plan"] is True
            assert (outside / "made").exists()
