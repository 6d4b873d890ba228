"""One question from its request to its resolution. A table of states without I/O."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import anyio

from sandboxd_proto.errors import (
    ApprovalDenied,
    BudgetExceeded,
    Conflict,
    InvalidParams,
    SandboxdError,
    ShuttingDown,
)
from sandboxd_proto.messages.approval import (
    Addition,
    ApprovalInfo,
    ApprovalKind,
    ApprovalState,
    Choice,
    Effect,
    Reach,
    Requester,
    Resolution,
)

# The reason of a resolution → the state that it leads to.
STATES: dict[str, ApprovalState] = {
    "timeout": "expired",
    "no_approver": "expired",
    "cancelled": "cancelled",
    "requester_gone": "cancelled",
    "session_closed": "cancelled",
    "budget": "cancelled",
    "shutdown": "cancelled",
    "plan": "denied",
    "remembered": "denied",
    "superseded": "cancelled",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked; the digest is over all of it. `subject`: the same without the session, by
    which a refusal is remembered. `secrets`: values that are never written to the trail."""

    kind: ApprovalKind
    session: str
    title: str | None
    client: Requester
    digest: str
    text: str
    choices: tuple[Choice, ...]
    execution_id: str | None = None
    argv: tuple[str, ...] | None = None
    display: str | None = None
    cwd: str | None = None
    truncated: bool = False
    effect: Effect | None = None
    plan: str | None = None
    reach: Reach | None = None
    add: Addition | None = None
    because: tuple[Any, ...] = ()
    warnings: tuple[str, ...] = ()
    subject: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)


class Outcome(NamedTuple):
    state: ApprovalState
    resolution: Resolution


@dataclass(slots=True, eq=False)
class Approval:
    """`waiting` counts the requests that it holds; they share the decision. `askers` are their
    connections. `run_digest`: of the request that an offer widens. `asked_at` is monotonic and
    decides about time-outs; `requested_at` and `expires_at` are shown."""

    question: Question
    timeout_s: float
    requested_at: float = field(default_factory=time.time)
    asked_at: float = field(default_factory=time.monotonic)
    id: str = field(default_factory=lambda: f"ap-{os.urandom(16).hex()}")
    state: ApprovalState = "pending"
    resolution: Resolution | None = None
    waiting: int = 0
    used_once: bool = False
    workspace: str | None = None
    run_digest: str | None = None
    askers: set[object] = field(default_factory=set)
    budget_error: BudgetExceeded | None = None
    resolved: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_pending(self) -> bool:
        return self.state == "pending"

    @property
    def deadline(self) -> float:
        return self.asked_at + self.timeout_s

    @property
    def expires_at(self) -> float:
        return self.shown_time(self.deadline)

    def shown_time(self, at: float) -> float:
        """A monotonic time as wall-clock time."""
        return self.requested_at + at - self.asked_at

    def choice_named(self, name: str) -> Choice:
        for choice in self.question.choices:
            if choice.choice == name:
                return choice
        raise InvalidParams(
            f"this approval has no choice {name!r}", field="choice",
            remedy="its choices are " + ", ".join(c.choice for c in self.question.choices),
        )  # fmt: skip

    def check_decision(self, digest: str, choice: str) -> Choice:
        """Conflict if it was decided already, or if something else was shown."""
        found = self.choice_named(choice)
        if not self.is_pending:
            raise Conflict(
                "this approval was resolved already", reason="decided",
                resolution=self.resolution, remedy="look at its resolution",
            )  # fmt: skip
        if digest != self.question.digest:
            raise Conflict(
                "the digest is not the one of this approval", reason="digest",
                remedy="show the approval again, and decide what it says now",
            )  # fmt: skip
        return found

    def outcome(
        self, reason: str, *, choice: Choice | None = None, by: Requester | None = None,
        message: str | None = None, grant: str | None = None,
    ) -> Outcome:  # fmt: skip
        """The state that a decision leads to. It is recorded before it takes effect."""
        if choice is not None:
            state: ApprovalState = "allowed" if choice.allows else "denied"
        else:
            state = STATES[reason]
        resolution = Resolution(
            choice=choice.choice if choice else None, reason=reason, by=by, message=message,
            at_ms=round(time.time() * 1000, 3), grant=grant,
        )  # fmt: skip
        return Outcome(state, resolution)

    def resolve(self, outcome: Outcome) -> bool:
        """False if it was resolved before: the first decision wins."""
        if not self.is_pending:
            return False
        self.state, self.resolution = outcome
        self.resolved.set()
        return True

    def refusal(self) -> SandboxdError:
        """The error for the requester when the approval was not allowed."""
        reason = self.resolution.reason if self.resolution else "timeout"
        message = self.resolution.message if self.resolution else None
        if reason == "shutdown":
            return ShuttingDown(
                "the daemon is shutting down", remedy="send the request again later"
            )
        if reason == "budget" and self.budget_error is not None:
            return self.budget_error
        if reason == "budget":
            return BudgetExceeded(
                "the session's budget ended while the request waited", reason="max_wall_time_secs",
                session=self.question.session, remedy="ask an approver for a larger budget",
            )  # fmt: skip
        text, remedy = _REFUSALS.get(reason, _REFUSALS["denied"])
        kind = reason if reason in _REFUSALS else "denied"
        refused = ApprovalDenied(text, reason=kind, approval=self.id, remedy=remedy)
        if message is not None:
            refused.facts["message"] = message
        return refused

    def info(self) -> ApprovalInfo:
        q = self.question
        return ApprovalInfo(
            approval=self.id, kind=q.kind, session=q.session, title=q.title, client=q.client,
            digest=q.digest, state=self.state, requested_ms=round(self.requested_at * 1000, 3),
            expires_ms=round(self.expires_at * 1000, 3), waiting=self.waiting, question=q.text,
            execution_id=q.execution_id, argv=list(q.argv) if q.argv is not None else None,
            display=q.display, cwd=q.cwd, truncated=q.truncated, effect=q.effect, plan=q.plan,
            reach=q.reach, add=q.add, because=list(q.because), warnings=list(q.warnings),
            choices=list(q.choices), resolution=self.resolution,
        )  # fmt: skip


def session_closed_error(approval_id: str) -> ApprovalDenied:
    text, remedy = _REFUSALS["session_closed"]
    return ApprovalDenied(text, reason="session_closed", approval=approval_id, remedy=remedy)


_REFUSALS: dict[str, tuple[str, str]] = {
    "denied": ("an approver refused this", "read `message`, and ask for something else"),
    "remembered": (
        "an approver refused this command for the rest of the session",
        "ask for something else",
    ),
    "timeout": (
        "no approver decided in time; this is not a refusal by a person",
        "send the request again when an approver is connected (`sandboxctl approve`)",
    ),
    "no_approver": (
        "no approver was connected; this is not a refusal by a person",
        "leave `sandboxctl approve` running in another terminal, then send the request again; how "
        "long it waits without one is grace_secs in the config's [approvals]",
    ),
    "plan": (
        "the session is in plan mode, where only a sandbox runs in which nothing can be written",
        "use the preset read-only without other paths to write and without network, or ask to "
        "leave plan mode",
    ),
    "session_closed": ("the session was closed", "open or attach to another session"),
}
