"""What runs, what is asked about, what is refused: by the plan's effect and the mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import Connection
from support.sessions import connect_approver, decide, error_of, open_session, pending

pytestmark = pytest.mark.requires("bubblewrap")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def worker(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as connection:
        yield connection


READ: dict[str, Any] = {"preset": "read-only"}
REACH: dict[str, Any] = {"manifest": {"network": "inherit"}}


def _edit(tmp_path: Path) -> dict[str, Any]:
    return {"preset": "workspace-write", "workspace": str(tmp_path)}


@pytest.mark.parametrize(
    ("mode", "plan", "expected"),
    [
        ("default", False, ("run", "ask", "ask")),
        ("auto_edit", False, ("run", "run", "ask")),
        ("force", False, ("run", "run", "run")),
        ("default", True, ("run", "refuse", "refuse")),
        ("force", True, ("run", "refuse", "refuse")),
        ("accept-edits", False, ("run", "run", "ask")),
        ("yolo", False, ("run", "run", "run")),
        ("dangerously-skip-permissions", False, ("run", "run", "run")),
        ("dangerously_skip_sandbox_and_permissions", False, ("run", "run", "run")),
        ("plan", False, ("run", "refuse", "refuse")),
    ],
)
def test_the_table_of_modes(
    worker: Connection, tmp_path: Path, mode: str, plan: bool, expected: tuple[str, ...]
) -> None:
    open_session(worker, mode=mode, **({"plan": True} if plan else {}))
    effects = ("read", "edit", "reach")
    for params, effect, decision in zip(
        (READ, _edit(tmp_path), REACH), effects, expected, strict=True
    ):
        found = worker.call("manifest/check", params)
        assert (found["effect"], found["decision"]) == (effect, decision)


def test_no_mode_skips_the_sandbox(worker: Connection) -> None:
    open_session(worker, mode="dangerously_skip_sandbox_and_permissions")
    params = {"argv": ["true"], "preset": "danger-full-access"}
    error_of(lambda: worker.call("execute", params), "SandboxUnavailable")


def test_an_unknown_mode_is_an_error(worker: Connection) -> None:
    error_of(lambda: open_session(worker, mode="ask-nobody"), "InvalidParams")


def test_without_sessions_nothing_is_asked(worker: Connection, tmp_path: Path) -> None:
    result = worker.call("execute", {"argv": ["touch", "made"], **_edit(tmp_path)})
    assert result["exit_code"] == 0
    assert result["session"].startswith("se-")
    assert result["approval"] is None


def test_plan_mode_refuses_and_runs_read_only_by_default(
    worker: Connection, tmp_path: Path
) -> None:
    open_session(worker, plan=True, workspace=str(tmp_path))
    params = {"argv": ["touch", "made"], **_edit(tmp_path)}
    error_of(lambda: worker.call("execute", params), "ApprovalDenied", reason="plan")
    result = worker.call("execute", {"argv": ["touch", "made"]})
    assert result["exit_code"] != 0
    assert not (tmp_path / "made").exists()


def test_a_child_is_never_wider_than_its_parent(worker: Connection) -> None:
    open_session(worker)
    error_of(lambda: open_session(worker, mode="force"), "Unauthorized", reason="mode")
    update = {"mode": "default"}
    child = open_session(worker)
    assert worker.call("session/update", update)["session"] == child["session"]
    wider = {"mode": "auto_edit"}
    error_of(lambda: worker.call("session/update", wider), "Unauthorized", reason="mode")


def test_narrowing_is_at_once_and_widening_waits(daemon: Daemon, worker: Connection) -> None:
    open_session(worker, mode="force")
    assert worker.call("session/update", {"mode": "default"})["mode"] == "default"
    with connect_approver(daemon) as approver:
        number = worker.start("session/update", {"mode": "force"})
        (waiting,) = pending(approver)
        assert waiting["kind"] == "session"
        decide(approver, waiting, "once")
        assert worker.result(number)["mode"] == "force"
        number = worker.start("session/update", {"plan": True})
        assert worker.result(number)["plan"] is True
        number = worker.start("session/update", {"plan": False})
        decide(approver, pending(approver)[0], "deny", "stay in plan mode")
        error_of(lambda: worker.result(number), "ApprovalDenied", message="stay in plan mode")


def test_an_approver_widens_by_itself(daemon: Daemon, worker: Connection) -> None:
    session = open_session(worker)
    with connect_approver(daemon) as approver:
        params = {"session": session["session"], "mode": "force"}
        assert approver.call("session/update", params)["mode"] == "force"
        assert worker.notification("session/changed", mode="force")["session"]


def test_widest_mode_makes_approval_mandatory(tmp_path: Path) -> None:
    with (
        running_daemon(config='[approvals]\nwidest_mode = "default"\n') as daemon,
        daemon.connect() as worker,
        connect_approver(daemon) as approver,
    ):
        number = worker.start("execute", {"argv": ["touch", "made"], **_edit(tmp_path)})
        (waiting,) = pending(approver)
        assert (waiting["kind"], waiting["effect"]) == ("execute", "edit")
        decide(approver, waiting, "deny")
        error_of(lambda: worker.result(number), "ApprovalDenied", reason="denied")
        assert not (tmp_path / "made").exists()
        number = worker.start("session/open", {"mode": "force"})
        (waiting,) = pending(approver)
        assert waiting["kind"] == "session"
        decide(approver, waiting, "once")
        assert worker.result(number)["mode"] == "force"


def test_the_whole_daemon_can_be_in_plan_mode(tmp_path: Path) -> None:
    with (
        running_daemon() as daemon,
        daemon.connect() as worker,
        connect_approver(daemon) as approver,
    ):
        params = {"argv": ["touch", "made"], **_edit(tmp_path)}
        assert approver.call("session/update", {"plan": True})["session"] == "user"
        error_of(lambda: worker.call("execute", params), "ApprovalDenied", reason="plan")
        assert any("plan mode" in text for text in worker.call("status")["warnings"])
        error_of(lambda: worker.call("session/update", {"plan": False}), "InvalidParams")
        error_of(lambda: approver.call("session/update", {"mode": "force"}), "InvalidParams")
        approver.call("session/update", {"session": "user", "plan": False})
        assert worker.call("execute", params)["exit_code"] == 0


# sandboxes that exist already


def test_a_sandbox_is_judged_by_the_present_mode(worker: Connection, tmp_path: Path) -> None:
    open_session(worker, mode="force")
    sandbox = worker.call("sandbox/create", {**_edit(tmp_path), "name": "web"})
    assert (sandbox["name"], sandbox["workspace"]) == ("web", str(tmp_path))
    run = {"argv": ["touch", "made"], "sandbox": "web"}
    worker.call("session/update", {"mode": "default"})
    assert worker.call("execute", run)["exit_code"] == 0  # it was allowed to make it
    worker.call("session/update", {"plan": True})
    error_of(lambda: worker.call("execute", run), "ApprovalDenied", reason="plan")


def test_a_narrow_session_cannot_use_the_sandbox_of_a_wide_one(
    daemon: Daemon, worker: Connection, tmp_path: Path
) -> None:
    open_session(worker, mode="force")
    sandbox = worker.call("sandbox/create", _edit(tmp_path))["sandbox"]
    with daemon.connect() as narrow, daemon.connect() as wide:
        open_session(narrow)
        run = {"argv": ["touch", "made"], "sandbox": sandbox}
        error_of(lambda: narrow.call("execute", run), "NotFound")
        error_of(lambda: narrow.call("sandbox/destroy", {"sandbox": sandbox}), "NotFound")
        assert narrow.call("sandbox/list")["sandboxes"] == []
        open_session(wide, mode="force")
        assert wide.call("execute", run)["exit_code"] == 0


def test_scopes_and_names_of_sandboxes(daemon: Daemon, tmp_path: Path) -> None:
    with daemon.connect() as other:
        with daemon.connect() as worker:
            session = open_session(worker, mode="force")
            made = worker.call("sandbox/create", {**READ, "name": "ours", "scope": "session"})
            got = worker.call("sandbox/get", {"sandbox": "ours"})
            assert (got["sandbox"], got["scope"], got["state"]) == (
                made["sandbox"], "session", "up",
            )  # fmt: skip
            assert (got["session"], got["forwards"]) == (session["session"], [])
            again = {**READ, "name": "ours"}
            error_of(lambda: other.call("sandbox/create", again), "Conflict", reason="name")
            error_of(lambda: other.call("sandbox/get", {"sandbox": "ours"}), "NotFound")
            worker.call("sandbox/create", {**READ, "name": "mine", "scope": "connection"})
            worker.call("sandbox/create", {**READ, "name": "users"})
            worker.call("session/close")
        while True:
            names = {s["name"] for s in other.call("sandbox/list")["sandboxes"]}
            if not names & {"ours", "mine"}:
                break
        assert "users" in names
        other.call("sandbox/destroy", {"sandbox": "users"})


def test_files_of_a_sandbox_follow_the_mode(
    daemon: Daemon, worker: Connection, tmp_path: Path
) -> None:
    open_session(worker, mode="force")
    sandbox = worker.call("sandbox/create", _edit(tmp_path))["sandbox"]
    file = {"sandbox": sandbox, "path": str(tmp_path / "file")}
    worker.call("fs/write", {**file, "data": "first"})  # the control
    worker.call("session/update", {"plan": True})
    for method, params in (
        ("fs/write", {**file, "data": "second"}), ("fs/remove", file), ("fs/read", file),
        ("fs/mkdir", {"sandbox": sandbox, "path": str(tmp_path / "folder")}),
        ("fs/rename", {"sandbox": sandbox, "from": file["path"], "to": str(tmp_path / "new")}),
        ("fs/copy", {"sandbox": sandbox, "from": file["path"], "to": str(tmp_path / "new")}),
        ("sandbox/forward", {"sandbox": sandbox, "port": 8000}),
    ):  # fmt: skip
        error_of(lambda m=method, p=params: worker.call(m, p), "ApprovalDenied", reason="plan")  # type: ignore[misc]
    assert (tmp_path / "file").read_text() == "first"
    with daemon.connect() as narrow:
        open_session(narrow)
        error_of(lambda: narrow.call("fs/write", {**file, "data": "third"}), "NotFound")


def test_a_forward_is_asked_about(daemon: Daemon, worker: Connection) -> None:
    open_session(worker, mode="auto_edit")
    sandbox = worker.call("sandbox/create", READ)["sandbox"]
    with connect_approver(daemon) as approver:
        number = worker.start("sandbox/forward", {"sandbox": sandbox, "port": 8000})
        (shown,) = pending(approver)
        assert "port 8000" in shown["question"]
        decide(approver, shown, "deny")
        error_of(lambda: worker.result(number), "ApprovalDenied", reason="denied")
