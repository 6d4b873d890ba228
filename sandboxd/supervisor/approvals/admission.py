"""Whether a request runs, waits for an approval, or is refused: depending on what its plan can do.

The mode of the session decides about the effect of the plan; grants that were given before and
refusals that are remembered come first. Nothing here looks at the command's text. What a person's
answer leads to is in `decisions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import anyio
import msgspec
from anyio.abc import TaskGroup

from sandboxd.backends.unsandboxed_keys import both_keys
from sandboxd.config.config import Config
from sandboxd.policy.plan import Plan
from sandboxd.supervisor.approvals.approval import Approval, session_closed_error
from sandboxd.supervisor.approvals.decisions import GRANT_KINDS, Decisions
from sandboxd.supervisor.approvals.digest import file_digests
from sandboxd.supervisor.approvals.grants import Grants
from sandboxd.supervisor.approvals.questions import CHANGED, RunRequest, run_question
from sandboxd.supervisor.approvals.queue import Approvals
from sandboxd.supervisor.budgets.ledger import USER
from sandboxd.supervisor.recorder import Recorder
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd.supervisor.sessions.effects import effect_of, fingerprint
from sandboxd.supervisor.sessions.modes import decide, narrower
from sandboxd.supervisor.sessions.registry import Sessions
from sandboxd.supervisor.sessions.session import Session
from sandboxd.supervisor.widening import covers
from sandboxd_proto.errors import ApprovalDenied, ApprovalPending
from sandboxd_proto.messages.approval import Decision, Effect
from sandboxd_proto.messages.session import Mode


class Judged(msgspec.Struct, frozen=True):
    """`grant`: an earlier grant that makes a question unnecessary."""

    effect: Effect
    decision: Decision
    grant: str | None = None


class Admitted(msgspec.Struct, frozen=True):
    """A request that may run. `approval`: the one that allowed it, if there was a question."""

    approval: str | None = None


class Waiter(msgspec.Struct, frozen=True):
    """A request that waits. `pending` tells its client of the approval; it stops waiting when
    `cancelled` is set; `gone`: whether its connection has ended."""

    connection: object
    cancelled: anyio.Event
    pending: Callable[[Approval], None] = lambda approval: None
    gone: Callable[[], bool] = lambda: False


_CAN: dict[Effect, str] = {
    "edit": "can write the workspace",
    "reach": "can use other paths, the network or an image",
    "bare": "is none",
}


def plan_mode_error(effect: Effect, flagged: list[str]) -> ApprovalDenied:
    """`flagged`: see Admission.plan_flags."""
    return ApprovalDenied(
        "the session is in plan mode, where only a sandbox runs in which nothing can be written; "
        f"this one {_CAN.get(effect, 'can do more')}, whatever the command does", reason="plan",
        flagged=flagged,
        remedy='use "preset": "read-only" without other paths to write and without network, or ask '
        "to leave plan mode",
    )  # fmt: skip


class Admission:
    def __init__(
        self, config: Config, sessions: Sessions, approvals: Approvals, grants: Grants,
        recorder: Recorder,
    ) -> None:  # fmt: skip
        self._config = config
        self.sessions = sessions
        self.approvals = approvals
        self.grants = grants
        self.recorder = recorder
        self.decisions = Decisions(config.approvals, sessions, grants, recorder)

    # deciding

    def mode_of(self, session: Session) -> Mode:
        """The narrowest mode of the session and the sessions above it."""
        mode = session.mode
        for above in session.upwards()[1:]:
            mode = narrower(mode, above.mode)
        return mode

    def is_planning(self, session: Session) -> bool:
        return session.effective_plan or self.sessions.plan_mode

    def plan_flags(self, session: Session) -> list[str]:
        """Where the flag is set that holds for the session: sessions, and `user` for the daemon."""
        own = [one.id for one in session.upwards() if one.plan]
        return [*own, USER] if self.sessions.plan_mode else own

    def judge(
        self, session: Session, plan: Plan, *, creator: Session | None = None,
        is_widened: bool = False,
    ) -> Judged:  # fmt: skip
        """`creator`: the session that opened the sandbox that the plan belongs to, which was
        allowed there; that counts as a grant in that session and below it. `is_widened`: grants
        widen the plan, so that naming what they add changes nothing."""
        bare = plan.backend == "none" or (plan.backend is None and both_keys(self._config))
        effect = effect_of(plan, bare=bare)
        decision = decide(effect, self.mode_of(session), self.is_planning(session))
        if decision != "ask":
            return Judged(effect, decision)
        if creator is not None and session.is_below(creator):
            return Judged(effect, "run")
        shape = fingerprint(plan, self.family_of(plan))
        grant = self.grants.run_grant(session, plan.grants_workspace, shape)
        if grant is None and is_widened:
            given = self.grants.given(session, plan.grants_workspace)
            left = effect_of(plan, bare=bare, given=given)
            return Judged(effect, decide(left, self.mode_of(session), False))
        return Judged(effect, "run" if grant else "ask", grant)

    # asking

    def run_request(
        self, request: ExecuteRequest, files: Mapping[str, str] | None = None
    ) -> RunRequest:
        """The request as an approver sees it: without what grants add."""
        assert request.session is not None
        plan = request.sent or request.plan
        return RunRequest(
            session=request.session, client=request.client, plan=plan, effect=request.effect,
            family=self.family_of(plan), argv=request.argv, stdin=request.stdin,
            execution_id=request.execution_id, files=files,
            stdin_open=request.stdin_open or request.pty is not None or request.had_fds,
        )  # fmt: skip

    def family_of(self, plan: Plan) -> str:
        """The backend that would run it, for the fingerprint of a grant."""
        return plan.backend or self._config.backend

    async def ask(
        self,
        asked: RunRequest,
        *,
        wait_secs: float | None,
        waiter: Waiter,
        again: Callable[[], Awaitable[RunRequest]],
    ) -> Admitted | None:
        """Hold a request until it is decided. None if it was cancelled meanwhile.

        `again` looks at the request anew after an allow: if anything that was shown has changed,
        it is a new question.
        """
        warnings: tuple[str, ...] = ()
        while True:
            question = run_question(asked, warnings)
            self.check_refused(asked.session, question.subject)
            approval = self.approvals.ask(question, held=True)
            approval.workspace = asked.plan.grants_workspace
            if not await self.wait(approval, wait_secs, waiter):
                return None
            approval.used_once = True
            if approval.state != "allowed":
                raise approval.refusal()
            asked = await again()
            if not asked.session.is_open:
                raise session_closed_error(approval.id)
            if self.is_planning(asked.session) and asked.effect != "read":
                raise plan_mode_error(asked.effect, self.plan_flags(asked.session))
            if asked.digest() == question.digest:
                return Admitted(approval.id)
            warnings = (CHANGED,)

    def check_refused(self, session: Session, subject: str) -> None:
        if any(subject in one.refused for one in session.upwards()):
            raise ApprovalDenied(
                "an approver refused this command for the rest of the session",
                reason="remembered", remedy="ask for something else",
            )  # fmt: skip

    async def wait(self, approval: Approval, wait_secs: float | None, waiter: Waiter) -> bool:
        """False if the request was cancelled. ApprovalPending if it was held long enough.

        The approval counts the request already (`held` of `Approvals.ask`).
        """
        if approval.is_pending:
            approval.askers.add(waiter.connection)
            waiter.pending(approval)
            try:
                if not await _first(approval.resolved, waiter.cancelled, wait_secs):
                    approval.waiting -= 1  # it stays: the same request can be sent again
                    raise ApprovalPending(
                        "this request waits for an approval",
                        approval=approval.id, expires_ms=round(approval.expires_at * 1000, 3),
                        remedy="send the same request again later, or wait with approval/wait",
                    )  # fmt: skip
            except anyio.get_cancelled_exc_class():
                self.approvals.withdraw(approval, "requester_gone")
                raise
            if approval.is_pending:
                self.approvals.withdraw(
                    approval, "requester_gone" if waiter.gone() else "cancelled"
                )
                return False
            approval.waiting -= 1
        return approval.state != "allowed" or not waiter.cancelled.is_set()

    def cover_pending(self) -> None:
        """A new grant may answer other approvals that wait, in every session that it covers."""
        for approval in self.approvals.pending():
            question = approval.question
            session = self.sessions.get(question.session)
            if session is None:
                continue
            if question.kind in GRANT_KINDS and not question.truncated:
                grant = self._covering(approval, session)
                if grant is not None:
                    self.approvals.cover(approval, grant)

    def _covering(self, approval: Approval, session: Session) -> str | None:
        question = approval.question
        if question.kind in ("execute", "sandbox"):
            if question.plan is None or question.warnings:
                return None
            return self.grants.run_grant(session, approval.workspace, question.plan)
        for grant in self.grants.additions(session, approval.workspace):
            if question.add is not None and covers(grant.add or {}, question.add):
                return grant.id
        return None


async def _first(one: anyio.Event, other: anyio.Event, within: float | None) -> bool:
    """Wait until one of both is set; False if neither is in time."""
    done = False

    async def wait(event: anyio.Event, group: TaskGroup) -> None:
        nonlocal done
        await event.wait()
        done = True
        group.cancel_scope.cancel()

    with anyio.move_on_after(within):
        async with anyio.create_task_group() as group:
            group.start_soon(wait, one, group)
            group.start_soon(wait, other, group)
    return done


async def look_at_files(argv: tuple[str, ...], cwd: str) -> dict[str, str]:
    return await anyio.to_thread.run_sync(file_digests, argv, cwd)
