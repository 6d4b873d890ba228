"""Sends notifications to the connections of a session, and to approvers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import anyio

from sandboxd.rpc.approver_token import ApproverToken
from sandboxd.supervisor.approvals.approval import Approval
from sandboxd.supervisor.approvals.queue import Approvals
from sandboxd.supervisor.sessions.session import Session
from sandboxd_proto.messages.approval import ApprovalInfo, ApprovalPendingNotice

if TYPE_CHECKING:
    from sandboxd.rpc.connection import Connection


class Hub:
    def __init__(self, approver_token: ApproverToken) -> None:
        self.approver_token = approver_token
        self.approvers: set[Connection] = set()
        self._next_record: anyio.Event | None = None

    def tell(self, connections: Iterable[Any], method: str, params: Any) -> None:
        for connection in list(connections):
            connection.notify(method, params)

    def session_changed(self, session: Session, besides: object = None) -> None:
        """`besides`: a connection that gets the same as an answer."""
        told = {*session.connections, *self.approvers} - {besides}
        self.tell(told, "session/changed", session.info(now()))

    def replay(self, connection: Connection, pending: Iterable[ApprovalInfo]) -> None:
        """A new approver gets every approval that waits, oldest first."""
        for approval in pending:
            connection.notify("approval/requested", approval)

    def requested(self, approval: Approval) -> None:
        self.tell(self.approvers, "approval/requested", approval.info())

    def resolved(self, approval: Approval, session: Session | None) -> None:
        """Notify the connections that wait for it; if none does (an offer), those of the
        session."""
        asking = set(approval.askers)
        if not asking and session is not None:
            asking = session.connections
        self.tell({*asking, *self.approvers}, "approval/resolved", approval.info())

    def tell_pending(
        self, connection: Any, execution_id: str, approval: Approval, approvals: Approvals
    ) -> None:
        """`expires_ms`: when it expires if no approver connects or leaves."""
        expires_at = approval.shown_time(approvals.deadline(approval)[0])
        notice = ApprovalPendingNotice(
            execution_id=execution_id, approval=approval.id, kind=approval.question.kind,
            expires_ms=round(expires_at * 1000, 3), approvers=approvals.approvers,
        )  # fmt: skip
        connection.notify("execution/pending", notice)

    def next_record(self) -> anyio.Event:
        """Set when the next record is written."""
        if self._next_record is None:
            self._next_record = anyio.Event()
        return self._next_record

    def note_record(self) -> None:
        """A record was written: wake the subscriptions."""
        waited_for, self._next_record = self._next_record, None
        if waited_for is not None:
            waited_for.set()


def now() -> float:
    return time.monotonic()
