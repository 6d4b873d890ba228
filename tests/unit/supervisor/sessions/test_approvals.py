"""Approvals and grants without a daemon: clocks that are set back, files that cannot be stored."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from sandboxd.config.config import ApprovalsConfig, Config
from sandboxd.rpc.handlers import approval as handler
from sandboxd.supervisor.approvals.admission import Admission
from sandboxd.supervisor.approvals.approval import Approval, Outcome, Question
from sandboxd.supervisor.approvals.digest import MOST_FILE_BYTES, file_digests
from sandboxd.supervisor.approvals.display import MOST_BYTES, display
from sandboxd.supervisor.approvals.grants import ApprovedGrant, Grants
from sandboxd.supervisor.approvals.questions import DENY, session_question
from sandboxd.supervisor.approvals.queue import Approvals
from sandboxd.supervisor.recorder import Recorder
from sandboxd.supervisor.sessions.registry import Sessions
from sandboxd.supervisor.sessions.session import Session
from sandboxd.supervisor.sessions.store import MOST_NAMES, NamedSession, SessionStore
from sandboxd_proto.errors import SandboxUnavailable, Unauthorized
from sandboxd_proto.messages.approval import Choice, DecideParams, Requester

CLIENT = Requester(name="agent", pid=1)
ONCE = Choice(choice="once", allows=True, scope="once", label="")
DAY = 86400.0


class Broken:
    """A trail that cannot be made durable; what it was told is kept in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def requested(self, approval: Approval) -> None:
        self.told.append("requested")

    def resolved(self, approval: Approval, outcome: Outcome) -> None:
        assert approval.is_pending
        self.told.append(outcome.state)

    async def durable(self, *, must: bool = False) -> None:
        raise SandboxUnavailable("the disk is full")


def _question(digest: str = "sha256:0") -> Question:
    return Question(
        kind="execute", session="se-1", title=None, client=CLIENT, digest=digest, text="run?",
        choices=(ONCE, *DENY),
    )  # fmt: skip


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(Config(), SessionStore(str(tmp_path)))


def _open(sessions: Sessions, parent: Session | None = None) -> Session:
    return sessions.open(parent, mode="default", plan=False)[0]


def test_a_clock_that_is_set_back_keeps_no_approval_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    approvals = Approvals(ApprovalsConfig(timeout_secs=10, no_approver="wait"), Recorder(None))
    approval = approvals.ask(_question())
    used = approvals.ask(_question("sha256:1"))
    used.resolve(used.outcome("decided", choice=ONCE))
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert approvals.with_digest("sha256:1") is used  # the control: it can be used now
    asked = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: asked + 11)
    assert approvals.with_digest("sha256:1") is None
    approvals._expire(asked + 11)
    assert approval.resolution is not None
    assert (approval.state, approval.resolution.reason) == ("expired", "timeout")


def test_a_decision_that_cannot_be_made_durable_has_no_effect(sessions: Sessions) -> None:
    recorder = Broken()
    approvals = Approvals(ApprovalsConfig(), recorder)
    admission = Admission(
        Config(), sessions, approvals, Grants("/nonexistent/grants.toml"), Recorder(None)
    )
    session = _open(sessions)
    question = session_question(session, CLIENT, "wider?", {"mode": "force"})
    approval = approvals.ask(question)

    async def decide() -> None:
        decisions = admission.decisions
        await approvals.decide(approval, question.digest, "once", CLIENT, None, decisions)

    with pytest.raises(SandboxUnavailable):
        anyio.run(decide)
    assert (approval.state, recorder.told) == ("pending", ["requested", "allowed"])
    assert not approval.resolved.is_set()


@pytest.mark.parametrize("relation", ["own", "child", "parent", "stranger"])
def test_a_connection_cannot_decide_for_its_former_session(
    sessions: Sessions, relation: str
) -> None:
    """The roles exclude each other already; this holds if a connection ever changes its role."""
    parent = _open(sessions)
    child = _open(sessions, parent)
    former = {"own": child, "child": child, "parent": parent, "stranger": _open(sessions)}[relation]
    asking = parent if relation == "child" else child
    approvals = Approvals(ApprovalsConfig(), Recorder(None))
    admission = Admission(Config(), sessions, approvals, Grants("/nonexistent"), Recorder(None))
    question = session_question(asking, CLIENT, "wider?", {"mode": "force"})
    approval = approvals.ask(question)
    call: Any = SimpleNamespace(
        service=SimpleNamespace(admission=admission), requester=CLIENT,
        connection=SimpleNamespace(former_sessions={former.id}),
    )  # fmt: skip
    params = DecideParams(approval=approval.id, digest=question.digest, choice="once")

    async def decide() -> Any:
        later: Any = handler.decide(call, params)
        return await later.work()

    if relation == "stranger":  # the control
        assert anyio.run(decide).state == "allowed"
        return
    with pytest.raises(Unauthorized) as caught:
        anyio.run(decide)
    assert caught.value.facts["reason"] == "own_request"
    assert approval.is_pending


# grants


def _grant(expires: str | None, path: str = "/opt") -> ApprovedGrant:
    return ApprovedGrant("widen", add={"fs_read_allow": [path]}, workspace="/w", expires=expires)


def test_an_expired_grant_does_not_come_back_with_the_clock(
    sessions: Sessions, tmp_path: Path
) -> None:
    now = 1_800_000_000.0  # 2027-01-15
    grants = Grants(str(tmp_path / "grants.toml"), clock=lambda: now)
    session = _open(sessions)
    anyio.run(grants.add, _grant("2027-01-15"))
    assert len(grants.covering(session, "/w")) == 1  # it ends with that day
    now += DAY
    assert grants.covering(session, "/w") == []
    now -= 30 * DAY
    assert grants.covering(session, "/w") == []
    now += 60 * DAY
    anyio.run(grants.add, _grant(None))
    assert "2027-01-15" not in (tmp_path / "grants.toml").read_text()


def test_a_name_that_is_not_text_breaks_no_other_grant(sessions: Sessions, tmp_path: Path) -> None:
    grants = Grants(str(tmp_path / "grants.toml"))
    anyio.run(grants.add, _grant(None))
    with pytest.raises(ValueError, match="surrogates"):
        anyio.run(grants.add, _grant(None, "/opt/\udcff"))
    anyio.run(grants.add, _grant(None, '/opt/"quoted\x7f\n"'))
    found = grants.covering(_open(sessions), "/w")
    assert [g.add for g in found] == [
        {"fs_read_allow": ["/opt"]}, {"fs_read_allow": ['/opt/"quoted\x7f\n"']},
    ]  # fmt: skip


def test_a_broken_file_is_kept_when_a_grant_is_added(tmp_path: Path) -> None:
    file = tmp_path / "grants.toml"
    file.write_text("[[grant]]\nid = mistyped")
    grants = Grants(str(file))
    assert grants.all() == []
    anyio.run(grants.add, _grant(None))
    assert len(grants.all()) == 1
    assert "mistyped" in (tmp_path / "grants.toml.broken").read_text()


# what is shown


def test_a_display_is_whole_or_truncated_at_the_byte() -> None:
    assert display(["x" * MOST_BYTES]) == ("x" * MOST_BYTES, False)
    assert display(["x" * (MOST_BYTES + 1)])[1] is True
    assert display(["x", "y" * (MOST_BYTES - 2)])[1] is False
    text, truncated = display(["x", "y" * (MOST_BYTES - 1)])
    assert (len(text), truncated) == (MOST_BYTES, True)
    assert display(["\0" * MOST_BYTES])[1] is True
    assert display(["é" * (MOST_BYTES // 2)])[1] is True  # with its quotes


def test_a_large_file_that_is_changed_at_its_end_has_another_digest(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(MOST_FILE_BYTES + 10))
    before = file_digests(["large"], str(tmp_path))
    assert file_digests(["large"], str(tmp_path)) == before
    time.sleep(0.02)  # the kernel's clock has ticks
    with file.open("r+b") as opened:
        opened.seek(MOST_FILE_BYTES + 5)
        opened.write(b"x")
    assert file_digests(["large"], str(tmp_path)) != before


# names


def test_new_names_do_not_push_out_a_restricted_one(tmp_path: Path) -> None:
    store = SessionStore(str(tmp_path))
    store.put("planned", NamedSession(plan=True))
    store.put("refused", NamedSession(refused=["sha256:0"]))
    for number in range(MOST_NAMES + 10):
        store.put(str(number), NamedSession())
    assert store.find("planned") is not None
    assert store.find("refused") is not None
    assert len(store.stored.sessions) == MOST_NAMES
