"""Sessions, approvals, grants, events and the audit trail, for both clients: the same names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from sandboxd_client.calls import MethodCall
from sandboxd_client.conversation import Awaited, ClientConnection, Notice
from sandboxd_proto.messages.approval import ApprovalInfo, ApprovalList, GrantList
from sandboxd_proto.messages.audit import AuditPage, Verified
from sandboxd_proto.messages.event import Subscribed
from sandboxd_proto.messages.execution import Nothing
from sandboxd_proto.messages.sandbox import SandboxDetails
from sandboxd_proto.messages.session import (
    Budget,
    Charged,
    SessionClosed,
    SessionInfo,
    SessionList,
    SessionOpened,
)
from sandboxd_proto.secret import Secret

R = TypeVar("R")


class SessionChanges(TypedDict, total=False):
    session: str | None
    title: str | None
    mode: str | None
    plan: bool | None
    preset: str | None
    workspace: str | None
    budget: Budget | None
    on_denial: str | None


class SessionOptions(TypedDict, total=False):
    name: str | None
    title: str | None
    parent: str | None
    mode: str | None
    plan: bool | None
    preset: str | None
    workspace: str | None
    budget: Budget | None
    on_denial: str | None
    linger_secs: float | None
    token: str | Secret | None


class Charge(TypedDict, total=False):
    session: str | None
    tokens_in: int
    tokens_out: int
    cost_usd: float
    request_id: str | None


class Subscription(TypedDict, total=False):
    role: str
    token: str | Secret | None
    after: str | None
    types: Sequence[str] | None
    session: str | None


class AuditQuery(TypedDict, total=False):
    after: str | None
    before: str | None
    session: str | None
    execution_id: str | None
    types: Sequence[str] | None
    limit: int


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Only what was said, as JSON values."""
    return {name: _value(item) for name, item in options.items() if item is not None}


def _value(item: Any) -> Any:
    return item.reveal() if isinstance(item, Secret) else msgspec.to_builtins(item)


class SessionMethods:
    """Of the blocking client."""

    _talk: ClientConnection

    def _ask(self, asked: MethodCall[R]) -> R:
        raise NotImplementedError

    def _until(self, awaited: Awaited) -> None:
        raise NotImplementedError

    def next_notice(self) -> Notice:
        """Wait for the next notification of sessions, approvals, budgets and events."""
        while (notice := self._talk.next_notice()) is None:
            self._until(self._talk.notices)
        return notice

    def session_open(self, **options: Unpack[SessionOptions]) -> SessionOpened:
        """Open a session; this connection is attached to it unless `parent` is named."""
        return self._ask(MethodCall("session/open", plain(options), SessionOpened))

    def session_attach(self, session: str, token: str | Secret) -> SessionInfo:
        """Attach this connection to a session."""
        params = plain({"session": session, "token": token})
        return self._ask(MethodCall("session/attach", params, SessionInfo))

    def session_update(self, **options: Unpack[SessionChanges]) -> SessionInfo:
        """Change a session; what widens it waits for an approval."""
        return self._ask(MethodCall("session/update", plain(options), SessionInfo))

    def session_close(self, session: str | None = None) -> SessionClosed:
        """Close a session, with all below it."""
        return self._ask(MethodCall("session/close", plain({"session": session}), SessionClosed))

    def session_list(self) -> SessionList:
        """The sessions that this connection may see."""
        return self._ask(MethodCall("session/list", {}, SessionList))

    def session_charge(self, **options: Unpack[Charge]) -> Charged:
        """Charge tokens and cost to a session's budget."""
        return self._ask(MethodCall("session/charge", plain(options), Charged))

    def approval_list(self, state: str = "pending", session: str | None = None) -> ApprovalList:
        """Approvals in one state."""
        params = plain({"state": state, "session": session})
        return self._ask(MethodCall("approval/list", params, ApprovalList))

    def approval_decide(
        self, approval: str, digest: str, choice: str, message: str | None = None
    ) -> ApprovalInfo:
        """Decide an approval, as approver."""
        params = plain(
            {"approval": approval, "digest": digest, "choice": choice, "message": message}
        )
        return self._ask(MethodCall("approval/decide", params, ApprovalInfo))

    def approval_wait(self, approval: str, timeout_secs: float | None = None) -> ApprovalInfo:
        """Wait until an approval is resolved, or for a time."""
        params = plain({"approval": approval, "timeout_secs": timeout_secs})
        return self._ask(MethodCall("approval/wait", params, ApprovalInfo))

    def grant_list(self, session: str | None = None) -> GrantList:
        """What was approved for longer, as approver."""
        return self._ask(MethodCall("grant/list", plain({"session": session}), GrantList))

    def grant_remove(self, grant: str) -> Nothing:
        """Take a grant back, as approver."""
        return self._ask(MethodCall("grant/remove", plain({"grant": grant}), Nothing))

    def events_subscribe(self, **options: Unpack[Subscription]) -> Subscribed:
        """Follow the audit trail; with the approver's token as approver."""
        return self._ask(MethodCall("events/subscribe", plain(options), Subscribed))

    def events_unsubscribe(self, subscription: str) -> Nothing:
        """End a subscription."""
        return self._ask(
            MethodCall("events/unsubscribe", plain({"subscription": subscription}), Nothing)
        )

    def audit_query(self, **options: Unpack[AuditQuery]) -> AuditPage:
        """Records of the audit trail, a page at a time."""
        return self._ask(MethodCall("audit/query", plain(options), AuditPage))

    def audit_verify(self) -> Verified:
        """Whether the chain of the audit trail is whole, as approver."""
        return self._ask(MethodCall("audit/verify", {}, Verified))

    def sandbox_get(self, sandbox: str) -> SandboxDetails:
        """A sandbox by its id or name."""
        return self._ask(MethodCall("sandbox/get", plain({"sandbox": sandbox}), SandboxDetails))


class AsyncSessionMethods:
    """Of the asynchronous client."""

    _talk: ClientConnection

    async def _ask(self, asked: MethodCall[R]) -> R:
        raise NotImplementedError

    async def _until(self, awaited: Awaited) -> None:
        raise NotImplementedError

    async def next_notice(self) -> Notice:
        """Wait for the next notification of sessions, approvals, budgets and events."""
        while (notice := self._talk.next_notice()) is None:
            await self._until(self._talk.notices)
        return notice

    async def session_open(self, **options: Unpack[SessionOptions]) -> SessionOpened:
        """Open a session; this connection is attached to it unless `parent` is named."""
        return await self._ask(MethodCall("session/open", plain(options), SessionOpened))

    async def session_attach(self, session: str, token: str | Secret) -> SessionInfo:
        """Attach this connection to a session."""
        params = plain({"session": session, "token": token})
        return await self._ask(MethodCall("session/attach", params, SessionInfo))

    async def session_update(self, **options: Unpack[SessionChanges]) -> SessionInfo:
        """Change a session; what widens it waits for an approval."""
        return await self._ask(MethodCall("session/update", plain(options), SessionInfo))

    async def session_close(self, session: str | None = None) -> SessionClosed:
        """Close a session, with all below it."""
        return await self._ask(
            MethodCall("session/close", plain({"session": session}), SessionClosed)
        )

    async def session_list(self) -> SessionList:
        """The sessions that this connection may see."""
        return await self._ask(MethodCall("session/list", {}, SessionList))

    async def session_charge(self, **options: Unpack[Charge]) -> Charged:
        """Charge tokens and cost to a session's budget."""
        return await self._ask(MethodCall("session/charge", plain(options), Charged))

    async def approval_list(
        self, state: str = "pending", session: str | None = None
    ) -> ApprovalList:
        """Approvals in one state."""
        params = plain({"state": state, "session": session})
        return await self._ask(MethodCall("approval/list", params, ApprovalList))

    async def approval_decide(
        self, approval: str, digest: str, choice: str, message: str | None = None
    ) -> ApprovalInfo:
        """Decide an approval, as approver."""
        params = plain(
            {"approval": approval, "digest": digest, "choice": choice, "message": message}
        )
        return await self._ask(MethodCall("approval/decide", params, ApprovalInfo))

    async def approval_wait(self, approval: str, timeout_secs: float | None = None) -> ApprovalInfo:
        """Wait until an approval is resolved, or for a time."""
        params = plain({"approval": approval, "timeout_secs": timeout_secs})
        return await self._ask(MethodCall("approval/wait", params, ApprovalInfo))

    async def grant_list(self, session: str | None = None) -> GrantList:
        """What was approved for longer, as approver."""
        return await self._ask(MethodCall("grant/list", plain({"session": session}), GrantList))

    async def grant_remove(self, grant: str) -> Nothing:
        """Take a grant back, as approver."""
        return await self._ask(MethodCall("grant/remove", plain({"grant": grant}), Nothing))

    async def events_subscribe(self, **options: Unpack[Subscription]) -> Subscribed:
        """Follow the audit trail; with the approver's token as approver."""
        return await self._ask(MethodCall("events/subscribe", plain(options), Subscribed))

    async def events_unsubscribe(self, subscription: str) -> Nothing:
        """End a subscription."""
        params = plain({"subscription": subscription})
        return await self._ask(MethodCall("events/unsubscribe", params, Nothing))

    async def audit_query(self, **options: Unpack[AuditQuery]) -> AuditPage:
        """Records of the audit trail, a page at a time."""
        return await self._ask(MethodCall("audit/query", plain(options), AuditPage))

    async def audit_verify(self) -> Verified:
        """Whether the chain of the audit trail is whole, as approver."""
        return await self._ask(MethodCall("audit/verify", {}, Verified))

    async def sandbox_get(self, sandbox: str) -> SandboxDetails:
        """A sandbox by its id or name."""
        return await self._ask(
            MethodCall("sandbox/get", plain({"sandbox": sandbox}), SandboxDetails)
        )
