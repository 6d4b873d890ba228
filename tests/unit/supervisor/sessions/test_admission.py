"""What holds for a session holds below it, and is checked again after an approver has allowed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

from sandboxd.config.config import ApprovalsConfig, Config
from sandboxd.policy.plan import Limits, NetworkRule, Plan, SandboxSpec
from sandboxd.supervisor.approvals.admission import Admission, Admitted, Waiter
from sandboxd.supervisor.approvals.approval import Approval
from sandboxd.supervisor.approvals.grants import Grants
from sandboxd.supervisor.approvals.questions import RunRequest
from sandboxd.supervisor.approvals.queue import Approvals
from sandboxd.supervisor.recorder import Recorder
from sandboxd.supervisor.sessions.registry import Sessions
from sandboxd.supervisor.sessions.session import Session
from sandboxd.supervisor.sessions.store import SessionStore
from sandboxd_proto.errors import ApprovalDenied
from sandboxd_proto.messages.approval import Requester

CLIENT = Requester(name="agent", pid=1)
PLAN = Plan(
    sandbox=SandboxSpec(base="minimal", network=NetworkRule("deny")), syscall_policy="baseline",
    timeout_s=1.0, limits=Limits(), env=(), cwd="/",
)  # fmt: skip


@pytest.fixture
def admission(tmp_path: Path) -> Admission:
    sessions = Sessions(Config(), SessionStore(str(tmp_path)))
    approvals = Approvals(ApprovalsConfig(), Recorder(None))
    return Admission(Config(), sessions, approvals, Grants("/nonexistent"), Recorder(None))


def opened(admission: Admission, parent: Session | None = None) -> Session:
    return admission.sessions.open(parent, mode="force", plan=False)[0]


def test_the_narrowest_mode_above_a_session_is_its_mode(admission: Admission) -> None:
    parent = opened(admission)
    child = opened(admission, opened(admission, parent))
    assert admission.mode_of(child) == "force"
    parent.mode = "default"
    assert admission.mode_of(child) == "default"
    child.mode = "auto_edit"
    assert admission.mode_of(child) == "default"


def test_a_refusal_for_the_session_holds_below_it(admission: Admission) -> None:
    parent = opened(admission)
    child, other = opened(admission, parent), opened(admission)
    admission.check_refused(child, "subject")
    parent.refused.add("subject")
    for session in (parent, child):
        with pytest.raises(ApprovalDenied):
            admission.check_refused(session, "subject")
    admission.check_refused(other, "subject")


def allow(
    admission: Admission, session: Session, then: Callable[[RunRequest], RunRequest]
) -> Admitted | None:
    """A request that an approver allows once; `then` happens before it is looked at again."""
    asked = RunRequest(session, CLIENT, PLAN, "edit", "auto", argv=("make",))

    async def again() -> RunRequest:
        return then(asked)

    async def decide(approval: Approval) -> None:
        digest, decisions = approval.question.digest, admission.decisions
        await admission.approvals.decide(approval, digest, "once", CLIENT, None, decisions)

    async def run() -> Admitted | None:
        async with anyio.create_task_group() as tasks:
            waiter = Waiter(object(), anyio.Event(), pending=partial(tasks.start_soon, decide))
            return await admission.ask(asked, wait_secs=None, waiter=waiter, again=again)

    try:
        return anyio.run(run)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


def test_what_was_allowed_runs(admission: Admission) -> None:
    """The control."""
    assert allow(admission, opened(admission), lambda asked: asked) is not None


def test_plan_mode_that_began_meanwhile_refuses_what_was_allowed(admission: Admission) -> None:
    session = opened(admission)

    def plan(asked: RunRequest) -> RunRequest:
        session.plan = True
        return asked

    with pytest.raises(ApprovalDenied, match="plan mode"):
        allow(admission, session, plan)


def test_a_session_that_was_closed_meanwhile_runs_nothing(admission: Admission) -> None:
    session = opened(admission)

    def close(asked: RunRequest) -> RunRequest:
        session.state = "closed"
        return asked

    with pytest.raises(ApprovalDenied):
        allow(admission, session, close)
