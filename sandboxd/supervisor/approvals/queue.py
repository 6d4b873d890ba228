"""The approvals that wait, and those that were resolved a short while ago."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import anyio
import msgspec

from sandboxd.config.config import ApprovalsConfig
from sandboxd.supervisor.approvals.approval import Approval, Outcome, Question
from sandboxd.supervisor.approvals.decisions import Decisions
from sandboxd_proto.errors import BudgetExceeded, Busy, Conflict, NotFound
from sandboxd_proto.messages.approval import Requester

MOST_IN_SESSION = 32
MOST_IN_ALL = 256


class ApprovalRecorder(Protocol):
    """Writes the trail; `durable` returns when what was written survives a power failure."""

    def requested(self, approval: Approval) -> None: ...
    def resolved(self, approval: Approval, outcome: Outcome) -> None: ...
    async def durable(self, *, must: bool = False) -> None: ...


def no_approval_error(approval_id: str) -> NotFound:
    return NotFound(
        f"there is no approval {approval_id!r}", field="approval",
        remedy="`approval/list` shows those that wait",
    )  # fmt: skip


class Approvals:
    """`approvers` is the number of connections that may decide. `run` owns the time-outs."""

    def __init__(self, config: ApprovalsConfig, recorder: ApprovalRecorder) -> None:
        self._config = config
        self._recorder = recorder
        self._by_id: dict[str, Approval] = {}
        self._deciding: set[str] = set()
        self._changed = anyio.Event()
        self._no_approver_since = time.monotonic()
        self.approvers = 0
        self.on_requested: Callable[[Approval], None] = lambda approval: None
        self.on_resolved: Callable[[Approval], None] = lambda approval: None

    @property
    def can_ask(self) -> bool:
        """Whether a decision can be expected: an approver is connected, is notified, or is waited
        for."""
        config = self._config
        return self.approvers > 0 or bool(config.notify) or config.no_approver == "wait"

    def pending(self) -> list[Approval]:
        """Oldest first."""
        return [approval for approval in self._by_id.values() if approval.is_pending]

    def all(self) -> list[Approval]:
        return list(self._by_id.values())

    def find(self, approval_id: str) -> Approval:
        found = self._by_id.get(approval_id)
        if found is None:
            raise no_approval_error(approval_id)
        return found

    def with_digest(self, digest: str) -> Approval | None:
        """One for the same request: it waits, or it was allowed once and not used yet."""
        for approval in self._by_id.values():
            if approval.question.digest != digest:
                continue
            if approval.is_pending or self._is_unused(approval):
                return approval
        return None

    def _is_unused(self, approval: Approval) -> bool:
        resolution = approval.resolution
        if approval.used_once or resolution is None or resolution.reason != "decided":
            return False
        return time.monotonic() < approval.deadline

    def ask(self, question: Question, *, held: bool = False) -> Approval:
        """A new approval, or the one that waits for the same digest. Busy above the limits.

        `held`: a request waits for it from now on (`Admission.wait`). Approvers are told of it.
        """
        joined = self.with_digest(question.digest)
        if joined is not None:
            joined.waiting += held and joined.is_pending
            return joined
        pending = self.pending()
        of_session = sum(a.question.session == question.session for a in pending)
        if of_session >= MOST_IN_SESSION or len(pending) >= MOST_IN_ALL:
            raise Busy(
                f"{of_session} approvals of this session wait already",
                remedy="wait for a decision before you ask for more",
            )
        approval = Approval(question, self._config.timeout_secs, waiting=int(held))
        self._recorder.requested(approval)
        self._by_id[approval.id] = approval
        self.on_requested(approval)
        self._wake()
        return approval

    async def decide(
        self, approval: Approval, digest: str, choice_name: str, by: Requester,
        message: str | None, decisions: Decisions,
    ) -> None:  # fmt: skip
        """The first decision wins, and is durable before it has an effect."""
        choice = approval.check_decision(digest, choice_name)
        if approval.id in self._deciding:
            await approval.resolved.wait()
            raise Conflict(
                "this approval was resolved already", reason="decided",
                resolution=approval.resolution,
            )  # fmt: skip
        self._deciding.add(approval.id)
        try:
            with anyio.CancelScope(shield=True):
                grant = decisions.grant_for(approval, choice)
                outcome = approval.outcome(
                    "decided", choice=choice, by=by, message=message,
                    grant=grant.id if grant is not None else None,
                )  # fmt: skip
                self._recorder.resolved(approval, outcome)
                await self._recorder.durable(must=choice.allows)
                kept = await decisions.carry_out(approval, choice, grant)
                resolution = msgspec.structs.replace(outcome.resolution, grant=kept)
                approval.resolve(Outcome(outcome.state, resolution))
                self._tell_resolved(approval)
        finally:
            self._deciding.discard(approval.id)

    def end(
        self, approval: Approval, reason: str, budget_error: BudgetExceeded | None = None
    ) -> None:
        """Resolve it without a decision. A decision that is being made durable wins."""
        if approval.id in self._deciding:
            return
        approval.budget_error = budget_error
        self._resolve(approval, approval.outcome(reason))

    def cover(self, approval: Approval, grant: str) -> None:
        """Resolve it: a new grant allows what it asks for."""
        allowing = next((c for c in approval.question.choices if c.allows), None)
        if approval.id in self._deciding or allowing is None:
            return
        self._resolve(approval, approval.outcome("granted", choice=allowing, grant=grant))

    def _resolve(self, approval: Approval, outcome: Outcome) -> None:
        if approval.is_pending:
            self._recorder.resolved(approval, outcome)
            approval.resolve(outcome)
            self._tell_resolved(approval)

    def withdraw(self, approval: Approval, reason: str) -> None:
        """One request fewer waits for it. The approval ends with the last one."""
        approval.waiting -= 1
        if approval.waiting <= 0:
            self.end(approval, reason)

    def _tell_resolved(self, approval: Approval) -> None:
        self.on_resolved(approval)
        self._wake()

    def approver_came(self) -> None:
        self.approvers += 1
        self._wake()

    def approver_left(self) -> None:
        self.approvers -= 1
        if self.approvers == 0:
            self._no_approver_since = time.monotonic()
        self._wake()

    # time

    async def run(self) -> None:
        """Expire what is due; forget what was resolved and can no longer be used."""
        while True:
            self._changed = anyio.Event()
            due = self._expire(time.monotonic())
            with anyio.move_on_after(due):
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()

    def _expire(self, now: float) -> float:
        """Seconds until the next one is due."""
        next_due = 60.0
        for approval in list(self._by_id.values()):
            if not approval.is_pending:
                if now >= approval.deadline:
                    del self._by_id[approval.id]
                continue
            at, reason = self.deadline(approval)
            if now >= at:
                self.end(approval, reason)
            else:
                next_due = min(next_due, at - now)
        return max(next_due, 0.01)

    def deadline(self, approval: Approval) -> tuple[float, str]:
        """When it is resolved without a decision, and why, if no approver comes or leaves."""
        if self.approvers == 0 and self._config.no_approver == "deny":
            asked = max(approval.asked_at, self._no_approver_since)
            alone = asked + self._config.grace_secs
            if alone < approval.deadline:
                return alone, "no_approver"
        return approval.deadline, "timeout"
