"""Denied, approved with one choice, and it runs: offers with the result, and retries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import Connection
from support.sessions import connect_approver, decide, open_session, pending

pytestmark = pytest.mark.requires("bubblewrap")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


@pytest.fixture
def worker(daemon: Daemon, workspace: Path) -> Iterator[Connection]:
    with daemon.connect() as connection:
        open_session(connection, mode="auto_edit", workspace=str(workspace))
        yield connection


@pytest.fixture
def approver(daemon: Daemon) -> Iterator[Connection]:
    with connect_approver(daemon) as connection:
        yield connection


def _write(outside: Path, name: str = "made", **more: Any) -> dict[str, Any]:
    return {"argv": ["sh", "-c", f"echo done > {outside}/{name}"], **more}


def test_an_offer_comes_with_the_result_and_its_grant_is_there_for_the_next_request(
    worker: Connection, approver: Connection, outside: Path
) -> None:
    result = worker.call("execute", _write(outside))
    assert result["exit_code"] != 0
    widening = result["widening"]
    assert widening["add"] == {"fs_write_allow": [str(outside)]}
    assert widening["state"] == "pending"
    (shown,) = pending(approver)
    assert (shown["kind"], shown["approval"]) == ("widen", widening["approval"])
    assert shown["add"] == widening["add"]
    assert shown["because"][0]["kind"] == "filesystem_write"
    assert [c["choice"] for c in shown["choices"]][:3] == ["once", "session", "always"]
    decide(approver, shown, "session")
    assert worker.notification("approval/resolved", approval=shown["approval"])
    again = worker.call("execute", _write(outside))
    assert (again["exit_code"], again["widening"]) == (0, None)
    (grant,) = again["grants"]
    assert [g["grant"] for g in approver.call("grant/list", {"session": shown["session"]})[
        "grants"
    ]] == [grant]  # fmt: skip
    assert (outside / "made").read_text() == "done\n"


def test_naming_what_a_grant_gives_asks_nothing(
    worker: Connection, approver: Connection, workspace: Path, outside: Path
) -> None:
    """The denial names the path as the remedy: who adds it after an allow is not asked again."""
    worker.call("execute", _write(outside))
    (shown,) = pending(approver)
    decide(approver, shown, "session")
    (outside / "below").mkdir()
    preset = {"preset": "workspace-write", "workspace": str(workspace)}
    named = {"manifest": {"fs_write_allow": [str(outside)]}, **preset}
    assert worker.call("manifest/check", named)["decision"] == "run"
    assert worker.call("execute", _write(outside, **named))["exit_code"] == 0
    below = {**named, "manifest": {"fs_write_allow": [str(outside / "below")]}}
    assert worker.call("manifest/check", below)["decision"] == "ask"
    both = {**named, "manifest": {"fs_write_allow": [str(outside)], "network": "inherit"}}
    assert worker.call("manifest/check", both)["decision"] == "ask"
    (grant,) = approver.call("grant/list", {"session": shown["session"]})["grants"]
    approver.call("grant/remove", {"grant": grant["grant"]})
    assert worker.call("manifest/check", named)["decision"] == "ask"


def test_once_holds_for_the_same_request_sent_again(
    worker: Connection, approver: Connection, outside: Path
) -> None:
    worker.call("execute", _write(outside))
    decide(approver, pending(approver)[0], "once")
    other = worker.call("execute", _write(outside, "other"))
    assert other["exit_code"] != 0
    decide(approver, pending(approver)[0], "deny")
    assert worker.call("execute", _write(outside))["exit_code"] == 0
    third = worker.call("execute", _write(outside))
    assert third["exit_code"] != 0
    decide(approver, pending(approver)[0], "deny")


def test_retry_holds_the_answer_and_runs_again(
    worker: Connection, approver: Connection, workspace: Path, outside: Path
) -> None:
    run = _write(outside, on_denial="retry", stream=True, capture=True)
    number = worker.start("execute", run)
    (shown,) = pending(approver)
    assert not worker.has_answered(number)
    decide(approver, shown, "session")
    result = worker.result(number)
    assert (result["exit_code"], result["widening"]) == (0, None)
    (attempt,) = result["attempts"]
    assert attempt["outcome"] == "exited"
    assert attempt["exit_code"] != 0
    assert attempt["denials"][0]["kind"] == "filesystem_write"
    started = [n["params"] for n in worker.notifications if n["method"] == "execution/started"]
    assert [s["attempt"] for s in started] == [1, 2]


def test_a_refused_retry_gives_the_first_result(
    worker: Connection, approver: Connection, outside: Path
) -> None:
    number = worker.start("execute", _write(outside, on_denial="retry"))
    decide(approver, pending(approver)[0], "deny", "not there")
    result = worker.result(number)
    assert result["exit_code"] != 0
    assert result["attempts"] == []
    widening = result["widening"]
    assert (widening["state"], widening["choice"]) == ("denied", "deny")
    assert widening["message"] == "not there"


def test_a_retry_can_be_cancelled_while_it_waits(
    worker: Connection, approver: Connection, outside: Path
) -> None:
    number = worker.start("execute", _write(outside, on_denial="retry", execution_id="held"))
    pending(approver)
    worker.call("execution/cancel", {"execution_id": "held"})
    result = worker.result(number)
    assert result["widening"]["state"] == "cancelled"


def test_at_most_three_retries(worker: Connection, approver: Connection, tmp_path: Path) -> None:
    folders = [tmp_path / f"f{i}" for i in range(5)]
    for folder in folders:
        folder.mkdir()
    script = " && ".join(f"echo x > {folder}/made" for folder in folders)
    number = worker.start("execute", {"argv": ["sh", "-c", script], "on_denial": "retry"})
    for _ in range(3):
        decide(approver, pending(approver)[0], "session")
    result = worker.result(number)
    assert len(result["attempts"]) == 3
    assert result["exit_code"] != 0
    assert result["widening"]["state"] == "pending"
    decide(approver, pending(approver)[0], "deny")


def test_with_open_stdin_a_retry_is_an_offer(
    worker: Connection, approver: Connection, outside: Path
) -> None:
    result = worker.call("execute", _write(outside, on_denial="retry", stdin_open=True))
    assert result["widening"]["state"] == "pending"
    decide(approver, pending(approver)[0], "deny")


def test_report_offers_nothing(worker: Connection, approver: Connection, outside: Path) -> None:
    assert worker.call("execute", _write(outside, on_denial="report"))["widening"] is None
    assert approver.call("approval/list")["approvals"] == []


def test_a_file_can_be_allowed_with_its_folder(
    worker: Connection, approver: Connection, outside: Path
) -> None:
    file = outside / "settings"
    file.write_text("a\n")
    worker.call("execute", {"argv": ["sh", "-c", f"echo b >> {file}"]})
    (shown,) = pending(approver)
    assert shown["add"] == {"fs_write_allow": [str(file)]}
    choices = {c["choice"]: c["add"] for c in shown["choices"]}
    assert choices["session"] == {"fs_write_allow": [str(file)]}
    assert choices["session_folder"] == {"fs_write_allow": [str(outside)]}
    decide(approver, shown, "session_folder")
    replace = {"argv": ["sh", "-c", f"echo c > {outside}/new && mv {outside}/new {file}"]}
    assert worker.call("execute", replace)["exit_code"] == 0


def test_a_folder_that_holds_a_repository_is_not_offered_and_a_claim_is_called_one(
    worker: Connection, approver: Connection, outside: Path
) -> None:
    (outside / "deep" / "project" / ".git").mkdir(parents=True)
    file = outside / "notes.txt"
    file.write_text("a\n")
    worker.call("execute", {"argv": ["sh", "-c", f"echo b >> {file}"]})
    (shown,) = pending(approver)
    assert shown["add"] == {"fs_write_allow": [str(file)]}
    assert "session_folder" not in {c["choice"] for c in shown["choices"]}
    assert shown["question"].startswith("the command says")
    decide(approver, shown, "deny")


def test_an_explicit_deny_of_the_request_wins_over_a_grant(
    worker: Connection, approver: Connection, workspace: Path, outside: Path
) -> None:
    worker.call("execute", _write(outside))
    decide(approver, pending(approver)[0], "session")
    manifest = {"fs_deny": [str(outside)]}
    request = {
        **_write(outside), "preset": "workspace-write", "workspace": str(workspace),
        "manifest": manifest, "on_denial": "report",
    }  # fmt: skip
    result = worker.call("execute", request)
    assert (result["exit_code"] != 0, result["grants"]) == (True, [])


@pytest.mark.parametrize("on_denial", ["offer", "retry"])
def test_a_folder_is_not_offered_for_a_start_up_file_to_be_made_in_it(
    worker: Connection, approver: Connection, outside: Path, on_denial: str
) -> None:
    for name in (".envrc", ".mcp.json"):
        result = worker.call("execute", _write(outside, name, on_denial=on_denial))
        assert [d["target"] for d in result["denials"]] == [str(outside / name)]
        assert result["widening"] is None
        assert approver.call("approval/list")["approvals"] == []
    result = worker.call("execute", _write(outside, on_denial="offer"))  # the control
    assert result["widening"]["add"] == {"fs_write_allow": [str(outside)]}
    decide(approver, pending(approver)[0], "deny")


def test_secrets_are_never_offered(
    daemon: Daemon, worker: Connection, approver: Connection
) -> None:
    secret = daemon.home / ".ssh" / "id_ed25519"
    secret.parent.mkdir(exist_ok=True)
    secret.write_text("KEY")
    for home in (daemon.home, Path.home()):
        run = {"argv": ["sh", "-c", f"cat {home}/.ssh/id_ed25519; echo x > {home}/.ssh/x"]}
        assert worker.call("execute", run)["widening"] is None
    assert approver.call("approval/list")["approvals"] == []


def test_what_the_ceiling_forbids_is_left_out(workspace: Path, outside: Path) -> None:
    config = f'[ceiling]\nroots = ["{workspace}"]\n'
    with running_daemon(config=config) as daemon, daemon.connect() as worker:
        open_session(worker, mode="auto_edit", workspace=str(workspace))
        result = worker.call("execute", _write(outside))
        assert result["denials"]
        assert result["widening"] is None


def test_nothing_is_offered_in_plan_mode(worker: Connection, outside: Path) -> None:
    worker.call("session/update", {"plan": True})
    assert worker.call("execute", _write(outside))["widening"] is None


def test_grants_of_a_worktree_are_those_of_its_main_checkout(
    daemon: Daemon, approver: Connection, tmp_path: Path, outside: Path
) -> None:
    import subprocess

    main, linked = tmp_path / "main", tmp_path / "linked"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (
        ["init", "-q", str(main)],
        ["-C", str(main), *identity, "commit", "-q", "--allow-empty", "-m", "x"],
        ["-C", str(main), "worktree", "add", "-q", str(linked)],
    ):
        subprocess.run(["git", *words], check=True, env=env)
    with daemon.connect() as first, daemon.connect() as second:
        open_session(first, mode="auto_edit", workspace=str(main))
        first.call("execute", _write(outside))
        decide(approver, pending(approver)[0], "always")
        open_session(second, mode="auto_edit", workspace=str(linked))
        result = second.call("execute", _write(outside))
        assert (result["exit_code"], len(result["grants"])) == (0, 1)


def test_grants_of_a_name_come_back_only_with_its_token(
    daemon: Daemon, approver: Connection, workspace: Path, outside: Path
) -> None:
    named = {"name": "granted", "mode": "auto_edit", "workspace": str(workspace)}
    with daemon.connect() as worker:
        token = open_session(worker, **named)["token"]
        worker.call("execute", _write(outside))
        decide(approver, pending(approver)[0], "session")
        assert worker.call("execute", _write(outside))["exit_code"] == 0
        worker.call("session/close")
    with daemon.connect() as worker:
        open_session(worker, **named)
        run = _write(outside, on_denial="report")
        assert worker.call("execute", run)["exit_code"] != 0
        worker.call("session/close")
    with daemon.connect() as worker:
        assert open_session(worker, **named, token=token)["token"] == token
        assert worker.call("execute", run)["exit_code"] == 0


def test_attempts_that_are_approved_at_once_stay_within_the_budget(
    daemon: Daemon, approver: Connection, workspace: Path, outside: Path
) -> None:
    with daemon.connect() as worker:
        budget = {"max_processes": 1}
        open_session(worker, mode="auto_edit", workspace=str(workspace), budget=budget)
        numbers = []
        for name in ("one", "two"):
            (outside / name).mkdir()
            wait = "until [ -e go ]; do sleep 0.05; done"
            script = f"echo done > {outside}/{name}/made || exit 1; {wait}"
            run = {"argv": ["sh", "-c", script], "on_denial": "retry"}
            numbers.append(worker.start("execute", run))
            shown = pending(approver, len(numbers), kinds=("widen",))
        approver.send(
            [
                {"jsonrpc": "2.0", "id": one["approval"], "method": "approval/decide", "params": {
                    "approval": one["approval"], "digest": one["digest"], "choice": "once"}}
                for one in shown
            ]
        )  # fmt: skip
        worker.wait_until(lambda: any(worker.has_answered(number) for number in numbers))
        (workspace / "go").touch()
        codes = sorted(worker.result(number)["exit_code"] for number in numbers)
    assert codes == [0, 1]
