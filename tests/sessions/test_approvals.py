"""An approval's life: each row of its table, and the races between decisions."""

from __future__ import annotations

import calendar
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import Connection
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

pytestmark = pytest.mark.requires("bubblewrap")
CONFIG = "[approvals]\ngrace_secs = 30\n"
DAY_S = 86400


@pytest.fixture(scope="module")
def one_daemon() -> Iterator[Daemon]:
    with running_daemon(config=CONFIG) as daemon:
        yield daemon


@pytest.fixture
def daemon(one_daemon: Daemon) -> Daemon:
    return one_daemon


@pytest.fixture
def worker(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as connection:
        connection.call("initialize", {"client": {"name": "agent", "version": "1"}})
        open_session(connection, title="fix the login")
        yield connection


@pytest.fixture
def approver(daemon: Daemon) -> Iterator[Connection]:
    with connect_approver(daemon) as connection:
        yield connection


def _touch(tmp_path: Path, name: str = "made", **more: Any) -> dict[str, Any]:
    preset = {"preset": "workspace-write", "workspace": str(tmp_path)}
    return {"argv": ["touch", name], **preset, **more}


def test_what_an_approver_is_shown(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    number = worker.start("execute", _touch(tmp_path, "it's", execution_id="shown"))
    (shown,) = pending(approver)
    assert shown["kind"] == "execute"
    assert shown["title"] == "fix the login"
    assert shown["client"]["name"] == "agent"
    assert shown["argv"] == ["touch", "it's"]
    assert shown["display"] == "touch 'it'\"'\"'s'"
    assert (shown["cwd"], shown["effect"], shown["waiting"]) == (str(tmp_path), "edit", 1)
    assert shown["reach"]["write"] == [str(tmp_path)]
    assert shown["reach"]["network"] == {"kind": "deny", "hosts": []}
    assert [c["choice"] for c in shown["choices"]] == [
        "once", "session", "always", "deny", "deny_session",
    ]  # fmt: skip
    assert shown["execution_id"] == "shown"
    assert worker.notification("execution/pending")["approval"] == shown["approval"]
    decided = decide(approver, shown, "once")
    assert decided["state"] == "allowed"
    assert decided["resolution"]["choice"] == "once"
    assert decided["resolution"]["reason"] == "decided"
    assert decided["resolution"]["by"]["name"] == "editor"
    result = worker.result(number)
    assert result["approval"] == shown["approval"]
    assert worker.notification("approval/resolved")["state"] == "allowed"
    assert (tmp_path / "it's").exists()


def test_the_notification_counts_the_request_that_asks(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    number = worker.start("execute", _touch(tmp_path, execution_id="counted"))
    assert approver.notification("approval/requested", execution_id="counted")["waiting"] == 1
    worker.call("execution/cancel", {"execution_id": "counted"})
    assert worker.result(number)["outcome"] == "cancelled"


def test_a_negative_wait_is_refused(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    worker.start("execute", _touch(tmp_path, execution_id="waited"))
    (shown,) = pending(approver)
    wait = {"approval": shown["approval"], "timeout_secs": -1}
    refused = error_of(lambda: worker.call("approval/wait", wait), "InvalidParams")
    assert refused.data["field"] == "timeout_secs"
    worker.call("execution/cancel", {"execution_id": "waited"})


def test_a_refusal_has_the_approvers_words(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    number = worker.start("execute", _touch(tmp_path))
    decide(approver, pending(approver)[0], "deny", "not on a Friday")
    data = answer_error(worker.answer(number), "ApprovalDenied", reason="denied")
    assert data["message"] == "not on a Friday"
    assert not (tmp_path / "made").exists()


def test_identical_requests_share_one_approval(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    numbers = [worker.start("execute", _touch(tmp_path)) for _ in range(3)]
    while (shown := pending(approver)[0])["waiting"] < 3:
        pass
    decide(approver, shown, "once")
    assert {worker.result(number)["exit_code"] for number in numbers} == {0}
    number = worker.start("execute", _touch(tmp_path))  # a later one is asked about again
    decide(approver, pending(approver)[0], "deny")
    answer_error(worker.answer(number), "ApprovalDenied")


def test_a_session_grant_allows_any_command_in_such_a_sandbox(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    first = worker.start("execute", _touch(tmp_path))
    second = worker.start("execute", _touch(tmp_path, "other"))
    shown = pending(approver, 2)[0]
    decide(approver, shown, "session")
    assert worker.result(first)["exit_code"] == worker.result(second)["exit_code"] == 0
    assert worker.call("execute", _touch(tmp_path, "third"))["exit_code"] == 0
    check = {"preset": "workspace-write", "workspace": str(tmp_path)}
    found = worker.call("manifest/check", check)
    (grant,) = approver.call("grant/list", {"session": shown["session"]})["grants"]
    assert (found["decision"], found["grant"]) == ("run", grant["grant"])
    assert (grant["kind"], grant["scope"]) == ("run", "session")
    network = {"kind": "deny", "hosts": []}
    assert grant["reach"] == {"write": [str(tmp_path)], "read": [], "network": network}
    wider = {**check, "manifest": {"network": "inherit"}}
    assert worker.call("manifest/check", wider)["decision"] == "ask"
    approver.call("grant/remove", {"grant": grant["grant"]})
    assert worker.call("manifest/check", check)["decision"] == "ask"


def test_an_always_grant_is_stored_for_the_workspace(
    daemon: Daemon, worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    number = worker.start("execute", _touch(tmp_path))
    decide(approver, pending(approver)[0], "always")
    assert worker.result(number)["exit_code"] == 0
    stored = daemon.home / ".config" / "sandboxd" / "grants.toml"
    assert str(tmp_path) in stored.read_text()
    listed = [g["reach"]["write"] for g in approver.call("grant/list")["grants"] if g["workspace"]]
    assert [str(tmp_path)] in listed
    with daemon.connect() as other:
        open_session(other)
        assert other.call("execute", _touch(tmp_path, "there"))["exit_code"] == 0
        text = stored.read_text()
        stored.write_text("this is not TOML [")
        check = {"preset": "workspace-write", "workspace": str(tmp_path)}
        assert other.call("manifest/check", check)["decision"] == "ask"
        stored.write_text(text)
        assert other.call("manifest/check", check)["decision"] == "run"
        (expires,) = re.findall(r'expires = "(.*)"', text)
        assert calendar.timegm(time.strptime(expires, "%Y-%m-%d")) - time.time() > 88 * DAY_S
        stored.write_text(text.replace(expires, "2020-01-01"))
        assert other.call("manifest/check", check)["decision"] == "ask"
        stored.unlink()
        assert other.call("manifest/check", check)["decision"] == "ask"


def test_a_refusal_for_the_session_is_remembered(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    number = worker.start("execute", _touch(tmp_path))
    decide(approver, pending(approver)[0], "deny_session")
    answer_error(worker.answer(number), "ApprovalDenied", reason="denied")
    run = _touch(tmp_path)
    error_of(lambda: worker.call("execute", run), "ApprovalDenied", reason="remembered")
    number = worker.start("execute", _touch(tmp_path, "another"))
    decide(approver, pending(approver)[0], "once")
    assert worker.result(number)["exit_code"] == 0


def test_the_first_decision_wins(
    daemon: Daemon, worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    number = worker.start("execute", _touch(tmp_path))
    (shown,) = pending(approver)
    with connect_approver(daemon) as second:
        params = {"approval": shown["approval"], "digest": shown["digest"]}
        one = approver.start("approval/decide", {**params, "choice": "deny"})
        other = second.start("approval/decide", {**params, "choice": "once"})
        answers = [approver.answer(one), second.answer(other)]
    won = [a["result"] for a in answers if "result" in a]
    lost = [a["error"]["data"] for a in answers if "error" in a]
    assert len(won) == len(lost) == 1
    assert (lost[0]["kind"], lost[0]["reason"]) == ("Conflict", "decided")
    assert lost[0]["resolution"] == won[0]["resolution"]
    answer = worker.answer(number)
    assert ("result" in answer) == (won[0]["state"] == "allowed") == (tmp_path / "made").exists()


@pytest.mark.parametrize("digest", ["", "sha256:" + "0" * 64])
def test_a_decision_repeats_the_digest(
    worker: Connection, approver: Connection, tmp_path: Path, digest: str
) -> None:
    number = worker.start("execute", _touch(tmp_path))
    (shown,) = pending(approver)
    params = {"approval": shown["approval"], "digest": digest, "choice": "once"}
    error_of(lambda: approver.call("approval/decide", params), "Conflict", reason="digest")
    params = {**params, "digest": shown["digest"], "choice": "sure"}
    error_of(lambda: approver.call("approval/decide", params), "InvalidParams")
    worker.call("execution/cancel", {"execution_id": shown["execution_id"]})
    assert worker.result(number)["outcome"] == "cancelled"


def test_a_script_that_changed_while_it_waited_is_asked_about_again(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("touch first\n")
    run = {**_touch(tmp_path), "argv": ["sh", "job.sh"]}
    number = worker.start("execute", run)
    (shown,) = pending(approver)
    script.write_text("touch second\n")
    decide(approver, shown, "once")
    while (again := pending(approver)[0])["approval"] == shown["approval"]:
        pass
    assert again["warnings"] == ["changed while it waited"]
    assert [c["choice"] for c in again["choices"]] == ["once", "deny", "deny_session"]
    assert again["digest"] != shown["digest"]
    assert not (tmp_path / "first").exists()
    assert not (tmp_path / "second").exists()
    decide(approver, again, "once")
    assert worker.result(number)["exit_code"] == 0
    assert (tmp_path / "second").exists()


def test_hidden_characters_are_shown_escaped(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    word = "a\u202eb\u200bc\x1b[2Kd\ue000e\n"
    number = worker.start("execute", _touch(tmp_path, word))
    (shown,) = pending(approver)
    assert shown["argv"][1] == word
    assert shown["display"].isprintable()
    for escape in (r"\u202e", r"\u200b", r"\x1b", r"\ue000", r"\x0a"):
        assert escape in shown["display"]
    assert shown["question"].isprintable()
    assert shown["warnings"]
    assert "session" not in [c["choice"] for c in shown["choices"]]
    decide(approver, shown, "deny")
    answer_error(worker.answer(number), "ApprovalDenied")


def test_a_long_command_is_shown_whole_or_is_truncated_by_name(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    number = worker.start("execute", _touch(tmp_path, "x" * 60_000))
    (shown,) = pending(approver)
    assert "x" * 60_000 in shown["display"]
    assert shown["truncated"] is False
    decide(approver, shown, "deny")
    answer_error(worker.answer(number), "ApprovalDenied")
    number = worker.start("execute", _touch(tmp_path, "x" * 70_000))
    (shown,) = pending(approver)
    assert shown["truncated"] is True
    assert [c["choice"] for c in shown["choices"]] == ["once", "deny", "deny_session"]
    decide(approver, shown, "deny")
    answer_error(worker.answer(number), "ApprovalDenied")


# the table


def test_cancelled_while_it_waits(worker: Connection, approver: Connection, tmp_path: Path) -> None:
    number = worker.start("execute", _touch(tmp_path, stream=True))
    pending(approver)
    worker.notify("$/cancelRequest", {"id": number})
    result = worker.result(number)
    assert (result["outcome"], result["duration_ms"], result["backend"]) == ("cancelled", 0, None)
    told = {n["method"] for n in worker.notifications}
    assert not told & {"execution/started", "execution/exited"}
    assert approver.notification("approval/resolved")["resolution"]["reason"] == "cancelled"


def test_the_requester_goes(daemon: Daemon, approver: Connection, tmp_path: Path) -> None:
    with daemon.connect() as leaving:
        open_session(leaving)
        leaving.start("execute", _touch(tmp_path))
        pending(approver)
    resolved = approver.notification("approval/resolved")
    assert (resolved["state"], resolved["resolution"]["reason"]) == ("cancelled", "requester_gone")
    assert not (tmp_path / "made").exists()


def test_one_of_two_requesters_goes(
    daemon: Daemon, worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    session = worker.call("session/update", {"title": "shared"})
    with daemon.connect() as opener:
        opened = open_session(opener)
        with daemon.connect() as mate:
            mate.call("session/attach", {"session": opened["session"], "token": opened["token"]})
            number = opener.start("execute", _touch(tmp_path))
            mate.start("execute", _touch(tmp_path))
            while pending(approver)[0]["waiting"] < 2:
                pass
        while (shown := pending(approver)[0])["waiting"] > 1:
            pass
        decide(approver, shown, "once")
        assert opener.result(number)["exit_code"] == 0
    assert session["title"] == "shared"


def test_the_session_is_closed(worker: Connection, approver: Connection, tmp_path: Path) -> None:
    number = worker.start("execute", _touch(tmp_path))
    (shown,) = pending(approver)
    closed = approver.call("session/close", {"session": shown["session"]})
    assert closed == {"executions": 1, "approvals": 1}
    answer_error(worker.answer(number), "ApprovalDenied", reason="session_closed")


def test_plan_mode_is_switched_on(worker: Connection, approver: Connection, tmp_path: Path) -> None:
    number = worker.start("execute", _touch(tmp_path))
    pending(approver)
    worker.call("session/update", {"plan": True})
    answer_error(worker.answer(number), "ApprovalDenied", reason="plan")


def test_the_budget_ends(worker: Connection, approver: Connection, tmp_path: Path) -> None:
    worker.call("session/update", {"budget": {"max_wall_time_secs": 0.5}})
    number = worker.start("execute", _touch(tmp_path))
    data = answer_error(worker.answer(number), "BudgetExceeded", reason="max_wall_time_secs")
    assert data["observed"] >= data["limit"] == 0.5
    assert not (tmp_path / "made").exists()
    (more,) = pending(approver, kinds=("budget",))
    assert more["approval"] == data["approval"]
    decide(approver, more, "deny")


def test_an_approver_leaves(daemon: Daemon, worker: Connection, tmp_path: Path) -> None:
    with connect_approver(daemon) as first:
        number = worker.start("execute", _touch(tmp_path))
        (shown,) = pending(first)
    with connect_approver(daemon) as second:
        assert second.notification("approval/requested")["approval"] == shown["approval"]
        decide(second, shown, "once")
    assert worker.result(number)["exit_code"] == 0


def test_a_new_approver_gets_what_waits_oldest_first(
    daemon: Daemon, worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    numbers = []
    for name in ("a", "b", "c"):
        numbers.append(worker.start("execute", _touch(tmp_path, name)))
        pending(approver, len(numbers))
    with daemon.connect() as late:
        token = Path(f"{daemon.socket}.approver").read_text()
        got = late.call("events/subscribe", {"role": "approver", "token": token})
        assert [a["argv"][1] for a in got["pending"]] == ["a", "b", "c"]
        while len([n for n in late.notifications if n["method"] == "approval/requested"]) < 3:
            late.wait_until(lambda: bool(late.notifications))
            late.call("approval/list")
        order = [
            n["params"]["argv"][1] for n in late.notifications
            if n["method"] == "approval/requested"
        ]  # fmt: skip
        assert order == ["a", "b", "c"]
        for shown in got["pending"]:
            decide(late, shown, "deny")
    for number in numbers:
        answer_error(worker.answer(number), "ApprovalDenied")


def test_time_is_up_is_not_a_refusal(tmp_path: Path) -> None:
    config = "[approvals]\ntimeout_secs = 0.3\n"
    with (
        running_daemon(config=config) as daemon,
        daemon.connect() as worker,
        connect_approver(daemon) as approver,
    ):
        open_session(worker)
        run = _touch(tmp_path)
        error_of(lambda: worker.call("execute", run), "ApprovalDenied", reason="timeout")
        assert approver.notification("approval/resolved")["state"] == "expired"


def test_nobody_could_decide_is_not_a_refusal(tmp_path: Path) -> None:
    config = "[approvals]\ngrace_secs = 3\n"
    with running_daemon(config=config) as daemon, daemon.connect() as worker:
        open_session(worker)
        run = _touch(tmp_path)
        error_of(lambda: worker.call("execute", run), "ApprovalDenied", reason="no_approver")
        number = worker.start("execute", run)
        with connect_approver(daemon) as approver:
            (shown,) = pending(approver)
            time.sleep(3.5)  # an approver is here: the grace time counts no longer
            decide(approver, shown, "once")
        assert worker.result(number)["exit_code"] == 0


def test_the_daemon_stops(tmp_path: Path) -> None:
    with running_daemon() as daemon, daemon.connect() as worker:
        open_session(worker)
        with connect_approver(daemon) as approver:
            number = worker.start("execute", _touch(tmp_path))
            pending(approver)
            os.kill(daemon.pid, signal.SIGTERM)
            answer_error(worker.answer(number), "ShuttingDown")
        assert not Path(f"{daemon.socket}.approver").exists() or daemon.process.wait(10) == 0


def test_the_daemon_is_killed(tmp_path: Path) -> None:
    with running_daemon() as daemon:
        with daemon.connect() as worker, connect_approver(daemon) as approver:
            open_session(worker)
            worker.start("execute", _touch(tmp_path))
            (shown,) = pending(approver)
            daemon.kill()
        assert "approval.requested" in types_of(trail(daemon))
        from sandboxd.audit.trail import open_trail
        from sandboxd.config.config import AuditConfig

        folder = next((daemon.home / ".local/state/sandboxd").glob("*/lock")).parent
        open_trail(str(folder), AuditConfig()).close()
        last = trail(daemon)[-1]
        assert last["type"] == "approval.resolved"
        assert last["data"]["approval"] == shown["approval"]
        assert last["data"]["reason"] == "daemon_restarted"
    assert not (tmp_path / "made").exists()


# held for a while only


def test_a_short_wait_answers_pending_and_the_next_request_uses_the_decision_once(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    run = _touch(tmp_path, approval_wait_secs=0)
    error = error_of(lambda: worker.call("execute", run), "ApprovalPending")
    (shown,) = pending(approver)
    assert error.data["approval"] == shown["approval"]
    again = error_of(lambda: worker.call("execute", run), "ApprovalPending")
    assert again.data["approval"] == shown["approval"]
    decide(approver, shown, "once")
    waited = worker.call("approval/wait", {"approval": shown["approval"], "timeout_secs": 5})
    assert waited["state"] == "allowed"
    assert worker.call("execute", run)["approval"] == shown["approval"]
    error = error_of(lambda: worker.call("execute", run), "ApprovalPending")
    assert error.data["approval"] != shown["approval"]
    decide(approver, pending(approver)[0], "deny")
    error_of(lambda: worker.call("execute", run), "ApprovalDenied", reason="denied")


def test_a_detached_request_answers_at_once(
    daemon: Daemon, approver: Connection, tmp_path: Path
) -> None:
    with daemon.connect() as leaving:
        session = open_session(leaving)
        started = leaving.call("execute", _touch(tmp_path, detach=True))
        assert started["approval"] == pending(approver)[0]["approval"]
    decide(approver, pending(approver)[0], "once")
    with daemon.connect() as back:
        credentials = {"session": session["session"], "token": session["token"]}
        back.call("session/attach", credentials)
        result = back.call("execution/wait", {"execution_id": started["execution_id"]})
    assert (result["exit_code"], result["approval"]) == (0, started["approval"])


def test_the_end_of_a_detached_request_that_never_ran_is_told(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    """A client that attached to it would wait for ever."""
    execution = worker.call("execute", _touch(tmp_path, detach=True))["execution_id"]
    attached = worker.call("execution/attach", {"execution_id": execution})
    assert attached["state"] == "pending"
    worker.call("execution/cancel", {"execution_id": execution})
    exited = worker.notification("execution/exited", execution_id=execution)
    assert (exited["outcome"], exited["exit_code"]) == ("cancelled", None)
    result = worker.call("execution/wait", {"execution_id": execution})
    assert result["outcome"] == "cancelled"


def test_clocks_start_after_the_decision(
    worker: Connection, approver: Connection, tmp_path: Path
) -> None:
    worker.call("session/update", {"budget": {"max_tool_runtime_secs": 30}})
    run = _touch(tmp_path, manifest={"timeout": 1})
    number = worker.start("execute", run)
    (shown,) = pending(approver)
    time.sleep(1.5)
    assert approver.call("session/list")["sessions"][-1]["usage"]["tool_runtime_secs"] < 1
    decide(approver, shown, "once")
    assert worker.result(number)["outcome"] == "exited"


def test_a_flood_is_bounded(worker: Connection, approver: Connection, tmp_path: Path) -> None:
    numbers = [worker.start("execute", _touch(tmp_path, f"n{i}")) for i in range(40)]
    answers = []
    while len(answers) < 8:
        answers = [number for number in numbers if worker.has_answered(number)]
        worker.call("session/list")
    for number in answers:
        answer_error(worker.answer(number), "Busy")
    waiting = approver.call("approval/list")["approvals"]
    assert len(waiting) == 32
    approver.call("session/close", {"session": waiting[0]["session"]})
    for number in set(numbers) - set(answers):
        answer_error(worker.answer(number), "ApprovalDenied", reason="session_closed")


def test_notify_runs_the_operators_command(tmp_path: Path) -> None:
    told = tmp_path / "told"
    config = f'[approvals]\nnotify = ["sh", "-c", "cat > {told}.new; mv {told}.new {told}"]\n'
    with (
        running_daemon(config=config) as daemon,
        daemon.connect() as worker,
        connect_approver(daemon) as approver,
    ):
        open_session(worker)
        number = worker.start("execute", _touch(tmp_path))
        (shown,) = pending(approver)
        deadline = time.monotonic() + 20
        while not told.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert shown["approval"] in told.read_text()
        decide(approver, shown, "deny")
        answer_error(worker.answer(number), "ApprovalDenied")
