"""`audit/*`: what ran, for whom, and with which outcome."""

from __future__ import annotations

from typing import Any

from sandboxd_proto.wire import Reported, WireStruct

# Every type of record; docs/audit.md says when each is written.
RECORD_TYPES = (
    "daemon.started", "daemon.stopped", "execution.started", "execution.ended",
    "execution.refused", "execution.lost", "sandbox.created", "sandbox.destroyed", "fs.changed",
    "forward.opened", "egress.refused", "session.opened", "session.changed", "session.closed",
    "approval.requested", "approval.resolved", "grant.added", "grant.removed", "budget.charged",
    "budget.warned", "budget.exceeded", "audit.recovered", "audit.gap", "audit.rotated",
    "audit.removed",
)  # fmt: skip


class Record(Reported, frozen=True, kw_only=True):
    """One line of the trail. `prev` is the SHA-256 of the line before."""

    v: int
    seq: int
    at: str
    type: str
    session: str | None
    execution_id: str | None
    client: dict[str, Any] | None
    data: dict[str, Any]
    prev: str


class Head(Reported, frozen=True, kw_only=True):
    """The last record. A copy kept elsewhere shows whether the trail was rewritten."""

    seq: int
    sha256: str


class AuditQueryParams(WireStruct, frozen=True, kw_only=True):
    after: str | None = None
    before: str | None = None
    session: str | None = None
    execution_id: str | None = None
    types: list[str] | None = None
    limit: int = 100


class AuditPage(Reported, frozen=True, kw_only=True):
    """`next`: the cursor of the next page, null when there is no more."""

    records: list[Record]
    next: str | None
    head: Head


class Verified(Reported, frozen=True, kw_only=True):
    ok: bool
    records: int
    broken_at: int | None
    head: Head
