"""`approval/*` and `grant/*`: questions that wait for a decision, and lasting answers."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sandboxd_proto.manifest import Network
from sandboxd_proto.wire import Reported, WireStruct

ApprovalKind = Literal["execute", "sandbox", "widen", "egress", "session", "budget"]
ApprovalState = Literal["pending", "allowed", "denied", "expired", "cancelled"]
Effect = Literal["read", "edit", "reach", "bare"]
Decision = Literal["run", "ask", "refuse"]
# A piece of a manifest: the fields that a grant adds.
Addition = dict[str, Any]


class Requester(Reported, frozen=True, kw_only=True):
    name: str
    pid: int | None


class Choice(Reported, frozen=True, kw_only=True):
    choice: str
    allows: bool
    scope: str
    label: str
    add: Addition | None = None


class Reach(Reported, frozen=True, kw_only=True):
    write: list[str]
    read: list[str]
    network: Network


class Resolution(Reported, frozen=True, kw_only=True):
    choice: str | None
    reason: str
    by: Requester | None
    message: str | None
    at_ms: float
    grant: str | None


class ApprovalInfo(Reported, frozen=True, kw_only=True):
    """`argv` is whole and meant for approvers; `display` has control characters escaped."""

    approval: str
    kind: ApprovalKind
    session: str
    title: str | None
    client: Requester
    digest: str
    state: ApprovalState
    requested_ms: float
    expires_ms: float
    waiting: int
    question: str
    execution_id: str | None = None
    argv: list[str] | None = None
    display: str | None = None
    cwd: str | None = None
    truncated: bool = False
    effect: Effect | None = None
    plan: str | None = None
    reach: Reach | None = None
    add: Addition | None = None
    because: list[Any] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    choices: list[Choice] = msgspec.field(default_factory=list)
    resolution: Resolution | None = None


class ApprovalListParams(WireStruct, frozen=True, kw_only=True):
    state: ApprovalState = "pending"
    session: str | None = None


class ApprovalList(Reported, frozen=True, kw_only=True):
    approvals: list[ApprovalInfo]
    approvers: int


class DecideParams(WireStruct, frozen=True, kw_only=True):
    approval: str
    digest: str
    choice: str
    message: str | None = None


class ApprovalWaitParams(WireStruct, frozen=True, kw_only=True):
    approval: str
    timeout_secs: float | None = None


class ApprovalPendingNotice(Reported, frozen=True, kw_only=True):
    """`execution/pending`: the execution waits for an approval."""

    execution_id: str
    approval: str
    kind: ApprovalKind
    expires_ms: float
    approvers: int


class GrantListParams(WireStruct, frozen=True, kw_only=True):
    session: str | None = None


class GrantInfo(Reported, frozen=True, kw_only=True):
    """`reach` of a run grant: what the sandbox can that it allows any command in."""

    grant: str
    scope: Literal["session", "always"]
    session: str | None
    workspace: str | None
    kind: Literal["run", "widen", "egress", "refuse"]
    match: str | None
    add: Addition | None
    expires: str | None
    reach: Reach | None = None


class GrantList(Reported, frozen=True, kw_only=True):
    grants: list[GrantInfo]


class GrantRef(WireStruct, frozen=True, kw_only=True):
    grant: str
