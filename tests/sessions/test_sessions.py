"""Sessions: a tree with tokens, names that keep their restrictions, and a /tmp of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.daemon import Daemon, running_daemon, stdout_of
from support.rpc import Connection
from support.sessions import connect_approver, error_of, open_session, trail, types_of

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.isolation]

CONFIG = "[sessions]\nlinger_secs = 0.3\ntmp_bytes = 20000000\n"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(config=CONFIG) as daemon:
        yield daemon


@pytest.fixture
def worker(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as connection:
        yield connection


def test_an_opened_session_has_the_documented_fields(worker: Connection) -> None:
    session = open_session(worker, title="fix the login", budget={"max_cost_usd": 1.5})
    assert session["session"].startswith("se-")
    assert (session["parent"], session["depth"], session["name"]) == (None, 0, None)
    assert (session["mode"], session["plan"], session["state"]) == ("default", False, "open")
    assert (session["preset"], session["on_denial"]) == ("read-only", "offer")
    assert session["budget"] == {"max_cost_usd": 1.5}
    assert session["usage"]["tokens_in"] == 0
    assert session["connections"] == 1
    assert len(session["token"]) == 64
    assert session["resumed"] is False
    assert session["tmp"] == "session"


def test_the_preset_is_workspace_write_where_there_is_a_workspace(
    worker: Connection, tmp_path: Path
) -> None:
    assert open_session(worker, workspace=str(tmp_path))["preset"] == "workspace-write"


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [({"workspace": "relative"}, "PathDenied"), ({"preset": "no-such"}, "ManifestInvalid")],
)
def test_a_default_that_no_request_could_use_is_refused(
    worker: Connection, wrong: dict[str, str], kind: str
) -> None:
    for method in ("session/open", "session/update"):
        error = error_of(partial(worker.call, method, wrong), kind)
        assert [error.data["field"]] == list(wrong)
        open_session(worker)


def test_a_second_open_on_a_connection_is_a_child(worker: Connection) -> None:
    first = open_session(worker)
    second = open_session(worker)
    assert (second["parent"], second["depth"]) == (first["session"], 1)


def test_with_parent_the_connection_stays_where_it_is(worker: Connection) -> None:
    first = open_session(worker)
    child = open_session(worker, parent=first["session"])
    assert child["connections"] == 0
    listed = {s["session"]: s for s in worker.call("session/list")["sessions"]}
    assert listed[first["session"]]["connections"] == 1
    assert child["session"] in listed


def test_attaching_takes_the_token(daemon: Daemon, worker: Connection) -> None:
    session = open_session(worker)
    with daemon.connect() as other:
        params = {"session": session["session"], "token": "0" * 64}
        error_of(lambda: other.call("session/attach", params), "Unauthorized", reason="token")
        params["token"] = session["token"]
        assert other.call("session/attach", params)["connections"] == 2
        assert "token" not in other.call("session/list")["sessions"][0]


def test_other_sessions_do_not_exist_for_a_worker(daemon: Daemon, worker: Connection) -> None:
    session = open_session(worker)
    with daemon.connect() as other:
        for method in ("session/update", "session/close", "session/charge"):
            params = {"session": session["session"]}
            error_of(lambda m=method, p=params: other.call(m, p), "NotFound")  # type: ignore[misc]
        run = {"argv": ["true"], "session": session["session"]}
        error_of(lambda: other.call("execute", run), "NotFound")
        assert other.call("session/list")["sessions"] == []


def test_executions_belong_to_all_connections_of_a_session(
    daemon: Daemon, worker: Connection
) -> None:
    session = open_session(worker)
    number = worker.start("execute", {"argv": ["sleep", "60"], "execution_id": "long"})
    with daemon.connect() as mate, daemon.connect() as stranger:
        credentials = {"session": session["session"], "token": session["token"]}
        mate.call("session/attach", credentials)
        assert [e["execution_id"] for e in mate.call("execution/list")["executions"]] == ["long"]
        assert stranger.call("execution/list")["executions"] == []
        error_of(lambda: stranger.call("execution/cancel", {"execution_id": "long"}), "NotFound")
        mate.call("execution/cancel", {"execution_id": "long"})
    assert worker.result(number)["outcome"] == "cancelled"


def test_a_session_ends_after_its_linger_time(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        session = open_session(connection, linger_secs=0.1)
    with connect_approver(daemon) as approver:
        while session["session"] in [
            s["session"] for s in approver.call("session/list")["sessions"]
        ]:
            time.sleep(0.05)
    assert "session.closed" in types_of(trail(daemon), session=session["session"])


def test_closing_kills_children_first_and_never_falls_back(
    daemon: Daemon, worker: Connection
) -> None:
    session = open_session(worker)
    child = open_session(worker, parent=session["session"])
    number = worker.start("execute", {"argv": ["sleep", "60"], "session": child["session"]})
    with daemon.connect() as mate:
        credentials = {"session": session["session"], "token": session["token"]}
        mate.call("session/attach", credentials)
        assert mate.call("session/close") == {"executions": 1, "approvals": 0}
        assert mate.call("session/close") == {"executions": 0, "approvals": 0}
        assert worker.result(number)["outcome"] == "cancelled"
        error_of(lambda: mate.call("execute", {"argv": ["true"]}), "NotFound")
        assert open_session(mate)["depth"] == 0
    closed = [
        record["session"] for record in trail(daemon)
        if record["type"] == "session.closed"
        and record["session"] in (session["session"], child["session"])
    ]  # fmt: skip
    assert closed == [child["session"], session["session"]]


# names


def test_a_live_name_is_a_conflict_without_its_token(daemon: Daemon, worker: Connection) -> None:
    session = open_session(worker, name="live")
    with daemon.connect() as other:
        error_of(lambda: open_session(other, name="live"), "Conflict", reason="name")
        wrong = {"name": "live", "token": "f" * 64}
        error_of(lambda: open_session(other, **wrong), "Unauthorized", reason="token")
        again = open_session(other, name="live", token=session["token"])
        assert again["session"] == session["session"]
        assert again["resumed"] is True


def test_a_name_comes_back_with_its_mode_plan_and_usage(daemon: Daemon) -> None:
    with daemon.connect() as worker:
        open_session(worker, name="again", plan=True)
        worker.call("session/charge", {"tokens_in": 7, "cost_usd": 0.25})
        worker.call("session/close")
    with daemon.connect() as worker:
        again = open_session(worker, name="again", mode="force")
        assert again["resumed"] is True
        assert (again["mode"], again["plan"]) == ("default", True)
        assert again["usage"]["tokens_in"] == 7
        assert again["usage"]["cost_usd"] == 0.25
        assert again["usage"]["wall_time_secs"] > 0


# /tmp


def test_commands_of_a_session_share_tmp(worker: Connection) -> None:
    open_session(worker, mode="force")
    for _ in range(2):
        worker.call("execute", {"argv": ["sh", "-c", "echo kept >> /tmp/note"]})
    assert stdout_of(worker.call("execute", {"argv": ["cat", "/tmp/note"]})) == "kept\nkept\n"
    result = worker.call("execute", {"argv": ["true"]})
    assert result["enforcement"]["tmp_bytes"] == "best_effort"


def test_commands_without_a_session_have_a_fresh_tmp(worker: Connection) -> None:
    worker.call("execute", {"argv": ["sh", "-c", "echo kept > /tmp/note"]})
    assert worker.call("execute", {"argv": ["cat", "/tmp/note"]})["exit_code"] != 0


def test_other_sessions_have_another_tmp(daemon: Daemon, worker: Connection) -> None:
    open_session(worker)
    worker.call("execute", {"argv": ["sh", "-c", "echo mine > /tmp/note"]})
    with daemon.connect() as other:
        open_session(other)
        assert other.call("execute", {"argv": ["cat", "/tmp/note"]})["exit_code"] != 0


def test_tmp_goes_with_its_session_and_is_hidden_from_sandboxes(
    daemon: Daemon, worker: Connection
) -> None:
    open_session(worker)
    worker.call("execute", {"argv": ["sh", "-c", "echo secret-note > /tmp/note"]})
    state = _state_folder(daemon)
    found = [path for path in state.glob("sessions/*/*/note") if "secret-note" in path.read_text()]
    assert len(found) == 1
    with daemon.connect() as other:
        result = other.call("execute", {"argv": ["cat", str(found[0])], "preset": "read-only"})
        assert result["exit_code"] != 0
    worker.call("session/close")
    assert not found[0].exists()


def test_a_session_that_fills_its_tmp_is_stopped(worker: Connection) -> None:
    open_session(worker)
    fill = "head -c 60000000 /dev/zero > /tmp/large; sleep 60"
    result = worker.call("execute", {"argv": ["sh", "-c", fill]})
    assert result["outcome"] == "file_size"
    assert any("tmp_bytes" in warning for warning in result["warnings"])
    (denial,) = result["denials"]
    assert (denial["target"], denial["evidence"], denial["remedy"]) == ("/tmp", "kernel", None)
    assert "[sessions] tmp_bytes" in denial["message"]
    assert worker.call("execute", {"argv": ["rm", "/tmp/large"]})["exit_code"] == 0


def _state_folder(daemon: Daemon) -> Path:
    beside = Path(f"{daemon.socket}.state")
    if beside.exists():
        return beside
    import hashlib
    import os

    name = hashlib.sha256(os.fsencode(str(beside))).hexdigest()[:16]
    return Path(f"/run/sandboxd-state-{name}")


@pytest.mark.requires("landlock")
def test_commands_share_tmp_without_mounts(tmp_path: Path) -> None:
    """By rule: TMPDIR leads to the session's folder, and another session's is closed."""
    with (
        running_daemon(config='backend = "landlock"\n') as daemon,
        daemon.connect() as worker,
        daemon.connect() as other,
    ):
        open_session(worker)
        open_session(other)
        run = {"argv": ["sh", "-c", "echo kept > $TMPDIR/note; echo $TMPDIR"]}
        folder = stdout_of(worker.call("execute", run)).strip()
        again = {"argv": ["sh", "-c", "cat $TMPDIR/note"]}
        assert stdout_of(worker.call("execute", again)) == "kept\n"
        theirs = {"argv": ["cat", f"{folder}/note"]}
        assert other.call("execute", theirs)["exit_code"] != 0
