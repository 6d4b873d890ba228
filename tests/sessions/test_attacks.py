"""What an agent tries to run or write what was not allowed, and to keep others from deciding."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import Closed, Connection
from support.sessions import (
    answer_error,
    connect_approver,
    decide,
    error_of,
    open_session,
    pending,
    trail,
    types_of,
)

from sandboxd.supervisor.budgets.ledger import MOST_DEEP

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.isolation]
CONFIG = "[approvals]\ngrace_secs = 30\n"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(config=CONFIG) as daemon:
        yield daemon


@pytest.fixture
def worker(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as connection:
        yield connection


@pytest.fixture
def approver(daemon: Daemon) -> Iterator[Connection]:
    with connect_approver(daemon) as connection:
        yield connection


def _edit(workspace: Path) -> dict[str, Any]:
    return {"preset": "workspace-write", "workspace": str(workspace)}


# sandboxes of others


def test_files_of_a_childs_sandbox_are_asked_about_in_its_parent(
    daemon: Daemon, worker: Connection, approver: Connection, workspace: Path
) -> None:
    """What a child was allowed counts for that child and below it, not for its parent."""
    parent = open_session(worker)
    child = open_session(worker, parent=parent["session"])
    number = worker.start("sandbox/create", {**_edit(workspace), "session": child["session"]})
    decide(approver, pending(approver)[0], "once")
    sandbox = worker.result(number)["sandbox"]
    file = {"sandbox": sandbox, "path": str(workspace / "file")}
    with daemon.connect() as mate:
        credentials = {"session": child["session"], "token": child["token"]}
        mate.call("session/attach", credentials)
        mate.call("fs/write", {**file, "data": "first"})  # the control: its own
    number = worker.start("fs/write", {**file, "data": "second"})
    (shown,) = pending(approver)
    assert (shown["kind"], shown["effect"]) == ("sandbox", "edit")
    assert (workspace / "file").read_text() == "first"
    decide(approver, shown, "deny")
    error_of(lambda: worker.result(number), "ApprovalDenied", reason="denied")
    number = worker.start("fs/write", {**file, "data": "third"})
    decide(approver, pending(approver)[0], "once")
    worker.result(number)
    assert (workspace / "file").read_text() == "third"


def test_an_approver_touches_no_files(
    worker: Connection, approver: Connection, workspace: Path
) -> None:
    sandbox = worker.call("sandbox/create", _edit(workspace))["sandbox"]
    file = {"sandbox": sandbox, "path": str(workspace / "file")}
    worker.call("fs/write", {**file, "data": "x"})
    for method, more in (("fs/write", {"data": "y"}), ("fs/read", {}), ("fs/remove", {})):
        params = {**file, **more}
        error_of(lambda m=method, p=params: approver.call(m, p), "Unauthorized", reason="role")  # type: ignore[misc]
    assert (workspace / "file").read_text() == "x"


# stale questions


def test_plan_mode_ends_questions_for_a_wider_mode(
    worker: Connection, approver: Connection
) -> None:
    session = open_session(worker)
    number = worker.start("session/update", {"mode": "force"})
    pending(approver)
    approver.call("session/update", {"session": session["session"], "plan": True})
    answer_error(worker.answer(number), "ApprovalDenied", reason="plan")
    (now,) = worker.call("session/list")["sessions"]
    assert (now["mode"], now["plan"]) == ("default", True)


def test_an_approval_changes_only_what_it_said(worker: Connection, approver: Connection) -> None:
    """What was narrowed while the question waited stays narrow."""
    session = open_session(worker, budget={"max_tokens_in": 10, "max_cost_usd": 9})
    number = worker.start("session/update", {"budget": {"max_tokens_in": 20}})
    (shown,) = pending(approver, kinds=("budget",))
    narrowed = {"session": session["session"], "budget": {"max_cost_usd": 1}}
    approver.call("session/update", narrowed)
    decide(approver, shown, "once")
    budget = worker.result(number)["budget"]
    assert budget == {"max_tokens_in": 20, "max_cost_usd": 1}


def test_a_script_changed_before_a_retry_is_asked_about_again(
    worker: Connection, approver: Connection, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    script = workspace / "job.sh"
    script.write_text(f"echo first > {outside}/made\n")
    open_session(worker, mode="auto_edit", workspace=str(workspace))
    number = worker.start("execute", {"argv": ["sh", "job.sh"], "on_denial": "retry"})
    (shown,) = pending(approver)
    script.write_text(f"echo second > {outside}/made\n")
    decide(approver, shown, "once")
    while (again := pending(approver)[0])["approval"] == shown["approval"]:
        pass
    assert again["warnings"] == ["changed while it waited"]
    assert not (outside / "made").exists()
    decide(approver, again, "once")
    assert worker.result(number)["exit_code"] == 0
    assert (outside / "made").read_text() == "second\n"


def test_a_command_with_open_input_is_another_question(
    worker: Connection, approver: Connection, workspace: Path
) -> None:
    """What is typed into it later was not shown."""
    open_session(worker)
    run = {"argv": ["sh"], **_edit(workspace)}
    numbers = [worker.start("execute", run), worker.start("execute", {**run, "stdin_open": True})]
    first, second = pending(approver, 2)
    assert first["digest"] != second["digest"]
    for shown in (first, second):
        decide(approver, shown, "deny")
    for number in numbers:
        answer_error(worker.answer(number), "ApprovalDenied")


# vanishing


def test_an_approver_that_vanishes_after_its_decision(
    daemon: Daemon, worker: Connection, workspace: Path
) -> None:
    open_session(worker)
    with connect_approver(daemon) as leaving:
        number = worker.start("execute", {"argv": ["touch", "made"], **_edit(workspace)})
        (shown,) = pending(leaving)
        decision = {"approval": shown["approval"], "digest": shown["digest"], "choice": "once"}
        leaving.start("approval/decide", decision)
    assert worker.result(number)["exit_code"] == 0
    assert (workspace / "made").exists()


def test_a_requester_that_vanishes_while_it_is_decided(
    daemon: Daemon, approver: Connection, workspace: Path
) -> None:
    """Whichever comes first: what ran was recorded, and nothing is left."""
    with daemon.connect() as leaving:
        session = open_session(leaving)["session"]
        run = {"argv": ["touch", "made"], "execution_id": "left", **_edit(workspace)}
        leaving.start("execute", run)
        (shown,) = pending(approver)
        decision = {"approval": shown["approval"], "digest": shown["digest"], "choice": "once"}
        number = approver.start("approval/decide", decision)
    approver.answer(number)
    while any(e["execution_id"] == "left" for e in approver.call("execution/list")["executions"]):
        pass
    assert pending_of(approver, session) == []
    if (workspace / "made").exists():
        assert "execution.started" in types_of(trail(daemon), execution_id="left")


def pending_of(approver: Connection, session: str) -> list[Any]:
    found = approver.call("approval/list")["approvals"]
    return [one for one in found if one["session"] == session]


# what is shown and stored


def test_blank_characters_are_shown(
    worker: Connection, approver: Connection, workspace: Path
) -> None:
    word = "a\u3164b\u00a0c\ufe0fd\u2800e\U000e0101f\u115fg\u034fh"
    open_session(worker)
    number = worker.start("execute", {"argv": ["touch", word], **_edit(workspace)})
    (shown,) = pending(approver)
    assert shown["display"].isascii()
    assert shown["warnings"]
    decide(approver, shown, "deny")
    answer_error(worker.answer(number), "ApprovalDenied")


def test_names_in_questions_are_shown_escaped(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    folder = tmp_path / "a\u202eb"
    folder.mkdir()
    open_session(worker, mode="auto_edit")
    sandbox = worker.call("sandbox/create", {"preset": "read-only", "name": "n\x1b[1Am"})
    number = worker.start("sandbox/forward", {"sandbox": sandbox["sandbox"], "port": 8000})
    (shown,) = pending(approver)
    assert shown["question"].isprintable()
    decide(approver, shown, "deny")
    answer_error(worker.answer(number), "ApprovalDenied")
    reach = {**_edit(folder), "manifest": {"network": "inherit"}}
    number = worker.start("execute", {"argv": ["true"], **reach})
    (shown,) = pending(approver)
    assert all(choice["label"].isprintable() for choice in shown["choices"])
    decide(approver, shown, "deny")
    answer_error(worker.answer(number), "ApprovalDenied")


def test_secret_values_of_a_held_request_are_not_stored(
    daemon: Daemon, worker: Connection, approver: Connection, workspace: Path
) -> None:
    value = "zxcvbnm-qwerty-1"
    manifest = {"env": {"DB_PASSWORD": value}}
    session = open_session(worker)["session"]
    run = {"argv": ["echo", f"connect {value} now"], "manifest": manifest, **_edit(workspace)}
    number = worker.start("execute", run)
    (shown,) = pending(approver)
    assert value in shown["argv"][1]  # an approver sees the whole command
    decide(approver, shown, "deny", f"not with {value}")
    answer_error(worker.answer(number), "ApprovalDenied")
    text = json.dumps([r for r in trail(daemon) if r["session"] == session])
    assert "approval.resolved" in text
    assert value not in text


# floods


def test_a_client_that_does_not_read_its_notifications_is_cut_off(
    daemon: Daemon, worker: Connection, approver: Connection, workspace: Path
) -> None:
    """An approver that sleeps must not fill the daemon's memory; it reads the queue when it
    connects again."""
    open_session(worker)
    deaf = connect_approver(daemon)
    before = approver.call("approval/list")["approvers"]
    padding = ["x" * 100_000] * 15
    for number in range(8):
        run = {"argv": ["touch", str(number), *padding], **_edit(workspace)}
        error_of(
            lambda r=run: worker.call("execute", {**r, "approval_wait_secs": 0}),  # type: ignore[misc]
            "ApprovalPending",
        )
        (shown,) = pending(approver)
        decide(approver, shown, "deny")
        approver.notifications.clear()
        worker.notifications.clear()
    assert approver.call("approval/list")["approvers"] == before - 1
    with deaf, pytest.raises((Closed, ConnectionError)):
        deaf.wait_until(lambda: False)


def test_a_reader_cannot_make_each_record_expensive(worker: Connection) -> None:
    for types in (["x"] * 65, ["x" * 65]):
        for method in ("events/subscribe", "audit/query"):
            params = {"types": types}
            error_of(lambda m=method, p=params: worker.call(m, p), "InvalidParams")  # type: ignore[misc]
    for _ in range(64):
        worker.call("events/subscribe", {"types": ["nothing"]})
    error_of(lambda: worker.call("events/subscribe"), "Busy")


def test_sessions_are_nested_to_a_bounded_depth(daemon: Daemon, approver: Connection) -> None:
    """Each request is checked against every session above its own."""
    with daemon.connect() as nesting, daemon.connect() as other:
        opened = [open_session(nesting)["session"] for _ in range(MOST_DEEP)]
        error_of(lambda: open_session(nesting), "Busy")
        assert nesting.call("execute", {"argv": ["true"]})["exit_code"] == 0
        assert open_session(other)["depth"] == 0
        approver.call("session/close", {"session": opened[1]})
        left = [one["session"] for one in approver.call("session/list")["sessions"]]
        assert opened[0] in left
        assert not set(opened[1:]) & set(left)


# the daemon's own files


def test_no_sandbox_writes_grants_or_the_trail_wherever_they_are(workspace: Path) -> None:
    """A config in a workspace: its grants are not beside it, where a command could write them."""
    config = workspace / "sandboxd.toml"
    trails = workspace / "trail"
    config.write_text(f'[audit]\nfolder = "{trails}"\n')
    run = {"argv": ["touch", "made"], **_edit(workspace)}
    forged = f"""[[grant]]
id = "gr-0"
kind = "widen"
workspace = "{workspace}"
add = {{ fs_write_allow = ["/opt"] }}
"""
    with (
        running_daemon(args=["--config", str(config)]) as daemon,
        daemon.connect() as worker,
        connect_approver(daemon) as approver,
    ):
        open_session(worker, mode="auto_edit")
        script = f"ls {trails}; echo x > {trails}/audit-0.jsonl; cat > grants.toml"
        made = {**run, "argv": ["sh", "-c", script], "stdin": forged}
        assert "audit-" not in worker.call("execute", made)["stdout"]["data"]
        assert list(trails.glob("audit-*.jsonl")) == [trails / "audit-1.jsonl"]
        assert (workspace / "grants.toml").read_text() == forged  # written, and without effect
        assert worker.call("execute", run)["grants"] == []
        reach = {**run, "manifest": {"network": "inherit"}}
        number = worker.start("execute", reach)
        decide(approver, pending(approver)[0], "always")
        assert worker.result(number)["exit_code"] == 0
        stored = daemon.home / ".config/sandboxd/grants.toml"
        assert str(workspace) in stored.read_text()  # the control: there they are kept
        touch = {**run, "argv": ["sh", "-c", f"echo > {stored}; cat {stored}"]}
        wide = {**touch, "manifest": {"fs_write_allow": [str(daemon.home)]}}
        number = worker.start("execute", wide)
        decide(approver, pending(approver)[0], "once")
        assert str(workspace) not in worker.result(number)["stdout"]["data"]
        assert str(workspace) in stored.read_text()


def test_nothing_runs_without_a_trail_where_it_is_required(workspace: Path) -> None:
    config = '[audit]\nrequired = true\nfolder = "/dev/null/audit"\n'
    with running_daemon(config=config) as daemon, daemon.connect() as worker:
        run = {"argv": ["touch", "made"], **_edit(workspace)}
        error_of(lambda: worker.call("execute", run), "SandboxUnavailable")
        error_of(lambda: worker.call("sandbox/create", _edit(workspace)), "SandboxUnavailable")
        error_of(lambda: open_session(worker), "SandboxUnavailable")
        assert not (workspace / "made").exists()


@pytest.mark.requires("root")
def test_a_full_disk_ends_nothing_but_what_needs_it(workspace: Path) -> None:
    """With `required` nothing starts; time goes on, and the daemon with it."""
    config = (
        "[audit]\nrequired = true\n[approvals]\ntimeout_secs = 5\n[sessions]\nlinger_secs = 0.1\n"
        "[session_cap]\nper_user_daily_usd = 1.0\n"
    )
    with (
        running_daemon(config=config, prefix=SMALL_STATE) as daemon,
        daemon.connect() as worker,
        connect_approver(daemon) as approver,
    ):
        state = Path(f"/proc/{daemon.pid}/root{daemon.home}/.local/state/sandboxd")
        with daemon.connect() as leaving:
            left = open_session(leaving, name="left")["session"]
        open_session(worker, name="named", budget={"max_wall_time_secs": 15})
        run = {"argv": ["touch", "made"], **_edit(workspace)}
        held = worker.start("execute", run)
        (shown,) = pending(approver)
        _fill(state, "full")
        error_of(lambda: _decide_until_full(worker, approver, shown), "SandboxUnavailable")
        answer_error(worker.answer(held), "ApprovalDenied", reason="timeout")
        error_of(lambda: worker.call("execute", {"argv": ["true"]}), "SandboxUnavailable")
        error = error_of(lambda: worker.call("session/charge", {"cost_usd": 0.5}), "BudgetExceeded")
        assert "day.json" in error.message
        worker.notification("session/changed", state="exhausted")
        while left in [s["session"] for s in approver.call("session/list")["sessions"]]:
            time.sleep(0.05)
        worker.call("session/update", {"plan": True})
        assert len(worker.call("status")["warnings"]) >= 2  # the trail, and the names
        assert not (workspace / "made").exists()
        (state / "full").unlink()
        with daemon.connect() as later:
            assert later.call("execute", {"argv": ["true"]})["exit_code"] == 0
        (file,) = state.glob("*/audit-1.jsonl")
        assert "audit.gap" in [json.loads(line)["type"] for line in file.read_text().splitlines()]
        assert approver.call("audit/verify")["ok"] is True


# A disk of a few pages for the daemon's trail and sessions.
SMALL_STATE = [
    "unshare", "--mount", "sh", "-c",
    'mkdir -p "$HOME/.local/state" && mount -t tmpfs -o size=64k none "$HOME/.local/state"'
    ' && exec "$@"', "sh",
]  # fmt: skip


def _fill(state: Path, name: str) -> None:
    with (state / name).open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


def _decide_until_full(worker: Connection, approver: Connection, shown: dict[str, Any]) -> None:
    """The last page of the trail may have room for some records."""
    for number in range(20):
        worker.call("session/charge", {"tokens_in": 1, "request_id": f"{number}" * 60})
    decide(approver, shown, "once")
