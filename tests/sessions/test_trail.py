"""The trail over the wire: what is recorded, what never is, cursors, kills and a full disk."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import Connection
from support.sessions import (
    approver_token,
    connect_approver,
    error_of,
    open_session,
    trail,
    types_of,
)

from sandboxd_proto import methods
from sandboxd_proto.secret import Secret

pytestmark = pytest.mark.requires("bubblewrap")
TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def worker(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as connection:
        yield connection


def _ended(daemon: Daemon, execution_id: str) -> list[dict[str, Any]]:
    """The records of an execution, once its end was written (after the answer)."""
    while True:
        found = [r for r in trail(daemon) if r["execution_id"] == execution_id]
        if found and found[-1]["type"] == "execution.ended":
            return found
        time.sleep(0.02)


def test_a_command_has_two_records_without_values_input_or_output(
    daemon: Daemon, worker: Connection
) -> None:
    params = {
        "argv": ["sh", "-c", "cat; echo OUTPUT-WORD", TOKEN, "--password=hunter2x"],
        "stdin": "STDIN-WORD", "execution_id": "recorded",
        "manifest": {"env": {"PLAIN": "VALUE-WORD", "API_KEY": "exact-value"}},
    }  # fmt: skip
    worker.call("execute", params)
    started, ended = _ended(daemon, "recorded")
    assert (started["type"], ended["data"]["outcome"]) == ("execution.started", "exited")
    text = json.dumps([started, ended])
    for word in (TOKEN, "hunter2x", "STDIN-WORD", "VALUE-WORD", "exact-value"):
        assert word not in text
    assert text.count("OUTPUT-WORD") == 1  # the command's text, not what it printed
    assert started["data"]["argv"][3].startswith("[redacted:")


def test_exact_values_of_secret_variables_are_redacted(daemon: Daemon, worker: Connection) -> None:
    manifest = {"env": {"DB_PASSWORD": "zxcvbnm-asdfgh"}}
    argv = ["echo", "connect zxcvbnm-asdfgh now"]
    worker.call("execute", {"argv": argv, "manifest": manifest, "execution_id": "exact"})
    started, _ = _ended(daemon, "exact")
    assert started["data"]["argv"][1] == "connect [redacted:value] now"


def test_refusals_are_recorded(daemon: Daemon, worker: Connection, tmp_path: Path) -> None:
    session = open_session(worker, plan=True)
    run = {"argv": ["touch", "x"], "preset": "workspace-write", "workspace": str(tmp_path)}
    error_of(lambda: worker.call("execute", run), "ApprovalDenied", reason="plan")
    records = [r for r in trail(daemon) if r["session"] == session["session"]]
    assert types_of(records) == ["session.opened", "execution.refused"]
    assert records[-1]["data"]["error"] == "ApprovalDenied"


def test_workers_see_their_own_session_and_below(daemon: Daemon, worker: Connection) -> None:
    session = open_session(worker)
    open_session(worker, parent=session["session"])
    worker.call("execute", {"argv": ["true"]})
    with daemon.connect() as other, connect_approver(daemon) as approver:
        other.call("execute", {"argv": ["true"]})
        seen = {r["session"] for r in worker.call("audit/query", {"limit": 1000})["records"]}
        mine = {s["session"] for s in worker.call("session/list")["sessions"]}
        assert seen <= mine
        assert session["session"] in seen
        assert approver.call("audit/verify")["ok"] is True
        page = approver.call("audit/query", {"limit": 2})
        assert len(page["records"]) == 2
        following = approver.call("audit/query", {"limit": 2, "after": page["next"]})
        assert following["records"][0]["seq"] == page["records"][1]["seq"] + 1


def test_a_type_that_no_record_has_is_refused(daemon: Daemon) -> None:
    with connect_approver(daemon) as approver:
        for wrong, said in (
            ("execution.endd", "did you mean execution.ended?"),
            ("execution", "did you mean execution.*?"),
            ("zzz", "daemon.*, execution.*"),
        ):
            params = {"types": ["daemon.*", wrong]}
            error = error_of(partial(approver.call, "audit/query", params), "InvalidParams")
            assert repr(wrong) in error.message
            assert said in error.data["remedy"]
        assert approver.call("audit/query", {"types": ["daemon.*"]})["records"]


def test_a_subscription_goes_on_from_its_cursor(daemon: Daemon, worker: Connection) -> None:
    worker.call("execute", {"argv": ["true"]})
    with daemon.connect() as reader:
        token = {"role": "approver", "token": approver_token(daemon), "after": "0"}
        got = reader.call("events/subscribe", {**token, "types": ["execution.*"]})
        assert got["gap"] is False
        first = reader.notification("events/event")
        assert first["record"]["type"].startswith("execution.")
        worker.call("execute", {"argv": ["true"], "execution_id": "later"})
        reader.wait_until(
            lambda: any(
                n["params"]["record"]["execution_id"] == "later"
                for n in reader.notifications
                if n["method"] == "events/event"
            )
        )
        seqs = [
            n["params"]["record"]["seq"] for n in reader.notifications
            if n["method"] == "events/event"
        ]  # fmt: skip
        assert seqs == sorted(set(seqs))


def test_a_reader_learns_that_records_are_gone() -> None:
    config = "[audit]\nmax_file_bytes = 2000\nmax_bytes = 6000\n"
    with running_daemon(config=config) as daemon, daemon.connect() as worker:
        open_session(worker)
        for _ in range(60):
            worker.call("session/charge", {"tokens_in": 1})
        with connect_approver(daemon) as approver:
            assert approver.call("events/subscribe", {"after": "0"})["gap"] is True
            oldest = approver.call("audit/query", {"limit": 1})["records"][0]["seq"]
            assert oldest > 1
            again = approver.call("events/subscribe", {"after": str(oldest - 1)})
            assert again["gap"] is False
            removed = approver.call("audit/query", {"types": ["audit.removed"]})["records"]
            assert removed[-1]["data"]["head"]["seq"] < oldest
            assert len(removed[-1]["data"]["head"]["sha256"]) == 64
            assert approver.call("audit/verify")["ok"] is True


def test_a_killed_daemon_leaves_a_trail_that_verifies() -> None:
    from sandboxd.audit.trail import open_trail
    from sandboxd.audit.verify_chain import verify
    from sandboxd.config.config import AuditConfig

    with running_daemon() as daemon, daemon.connect() as worker:
        worker.start("execute", {"argv": ["sleep", "60"], "execution_id": "open"})
        while "execution.started" not in types_of(trail(daemon)):
            time.sleep(0.02)
        daemon.kill()
        folder = str(next((daemon.home / ".local/state/sandboxd").glob("*/lock")).parent)
        file = next(Path(folder).glob("audit-*.jsonl"))
        with file.open("ab") as opened:
            opened.write(b'{"v":1,"seq":99,"ty')  # torn by the kill
        open_trail(folder, AuditConfig()).close()
        assert types_of(trail(daemon))[-2:] == ["audit.recovered", "execution.lost"]
        assert verify(folder).ok


@pytest.mark.requires("root")  # which sets limits of a hardened process
def test_nothing_runs_without_its_record_where_it_is_required(tmp_path: Path) -> None:
    config = f'[audit]\nrequired = true\nfolder = "{_large_trail(tmp_path)}"\n'
    with running_daemon(config=config) as daemon, daemon.connect() as worker:
        assert worker.call("execute", {"argv": ["true"]})["exit_code"] == 0
        _limit_files(daemon, MEBIBYTE)
        run = {
            "argv": ["touch", "made"], "preset": "workspace-write", "workspace": str(tmp_path),
        }  # fmt: skip
        error_of(lambda: worker.call("execute", run), "SandboxUnavailable")
        assert not (tmp_path / "made").exists()
        _limit_files(daemon, -1)


@pytest.mark.requires("root")  # which sets limits of a hardened process
def test_work_goes_on_and_the_gap_is_told_where_it_is_not_required(tmp_path: Path) -> None:
    folder = _large_trail(tmp_path)
    config = f'[audit]\nfolder = "{folder}"\n'
    with running_daemon(config=config) as daemon, daemon.connect() as worker:
        worker.call("execute", {"argv": ["true"]})
        _limit_files(daemon, MEBIBYTE)
        assert worker.call("execute", {"argv": ["true"]})["exit_code"] == 0
        assert any("audit trail" in text for text in worker.call("status")["warnings"])
        _limit_files(daemon, -1)
        worker.call("execute", {"argv": ["true"]})
        lines = (folder / "audit-1.jsonl").read_text().splitlines()
        assert "audit.gap" in [json.loads(line)["type"] for line in lines]


MEBIBYTE = 1 << 20


def _large_trail(tmp_path: Path) -> Path:
    """A trail that is beyond a limit on the size of files, as on a full disk, which the daemon's
    other files are not."""
    folder = tmp_path / "trail"
    folder.mkdir()
    record = {
        "v": 1, "seq": 1, "at": "2026-01-01T00:00:00.000Z", "type": "daemon.started",
        "session": None, "execution_id": None, "client": None, "data": {"pad": "x" * 2 * MEBIBYTE},
        "prev": "0" * 64,
    }  # fmt: skip
    (folder / "audit-1.jsonl").write_text(json.dumps(record) + "\n")
    return folder


def _limit_files(daemon: Daemon, size: int) -> None:
    hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (size, hard))


def test_no_struct_shows_a_secret() -> None:
    """Every field of every message that is called token or key is a Secret, shown as redacted."""
    assert str(Secret("s")) == repr(Secret("s")) == f"{Secret('s')}" == "<redacted>"
    walked: set[type[Any]] = set()
    found: list[str] = []

    def walk(kind: Any) -> None:
        for inner in getattr(kind, "__args__", ()):
            walk(inner)
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or kind in walked:
            return
        walked.add(kind)
        for field in msgspec.structs.fields(kind):
            if field.name in ("token", "api_key", "secret", "password"):
                assert Secret in (field.type, *getattr(field.type, "__args__", ())), (kind, field)
                found.append(kind.__name__)
            walk(field.type)

    for method in methods.METHODS:
        for kind in (method.params, method.result):
            for one in kind if isinstance(kind, tuple) else (kind,):
                walk(one)
    for notification in methods.NOTIFICATIONS:
        walk(notification.params)
    assert {"SessionOpenParams", "SessionAttachParams", "SubscribeParams", "SessionOpened"} <= set(
        found
    )
