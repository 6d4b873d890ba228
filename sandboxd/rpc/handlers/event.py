"""`events/*`: follow the audit trail; as approver, get what waits for a decision."""

from __future__ import annotations

from collections.abc import Callable

from sandboxd.audit.trail import Trail
from sandboxd.rpc.notifications.subscriptions import Subscription
from sandboxd.rpc.request_context import RequestContext
from sandboxd_proto.errors import InvalidParams, NotFound, SandboxUnavailable, Unauthorized
from sandboxd_proto.messages.event import Subscribed, SubscribeParams, UnsubscribeParams
from sandboxd_proto.messages.execution import Nothing

MOST_TYPES = 64


def subscribe(call: RequestContext, params: SubscribeParams) -> Subscribed:
    connection, hub = call.connection, call.service.hub
    approvals = call.service.admission.approvals
    trail = trail_of(call)
    check_types(params.types)
    after = cursor(params.after, trail.head.seq)
    if params.role == "approver":
        _become_approver(call, params)
    subscription = Subscription(
        trail, hub, after, params.types, _visible(call, params.session), connection.send_notice
    )
    connection.subscribe(subscription, call)
    pending = []
    if params.role == "approver":
        pending = [approval.info() for approval in approvals.pending()]
        call.after_answer(lambda: hub.replay(connection, pending))
    return Subscribed(
        subscription=subscription.id,
        role=params.role,
        cursor=str(after),
        gap=after + 1 < trail.oldest,
        pending=pending,
    )


def _become_approver(call: RequestContext, params: SubscribeParams) -> None:
    connection = call.connection
    if connection.role == "worker":
        raise Unauthorized(
            "a connection that runs commands cannot decide about them", reason="role",
            remedy="use a second connection to approve",
        )  # fmt: skip
    call.service.hub.approver_token.require(params.token)
    if connection.role != "approver":
        connection.become_approver()


def _visible(call: RequestContext, session_id: str | None) -> Callable[[str | None], bool]:
    if call.is_approver and session_id is None:
        return lambda session: True
    family = call.any_session(session_id).family
    return lambda session: session in family


def unsubscribe(call: RequestContext, params: UnsubscribeParams) -> Nothing:
    if not call.connection.unsubscribe(params.subscription):
        raise NotFound(
            f"there is no subscription {params.subscription!r}", field="subscription",
            remedy="name one that events/subscribe answered on this connection",
        )  # fmt: skip
    return Nothing()


def check_types(types: list[str] | None) -> None:
    """Each is compared with each record."""
    if types is not None and (len(types) > MOST_TYPES or any(len(t) > MOST_TYPES for t in types)):
        raise InvalidParams(
            f"types are at most {MOST_TYPES} names of at most {MOST_TYPES} characters",
            field="types",
        )


def cursor(text: str | None, otherwise: int, field: str = "after") -> int:
    if text is None:
        return otherwise
    if not text.isdecimal() or len(text) > 18:
        raise InvalidParams(
            "a cursor is the number of a record, as text", field=field,
            remedy='for example "0" for the whole trail',
        )  # fmt: skip
    return int(text)


def trail_of(call: RequestContext) -> Trail:
    trail = call.service.admission.recorder.trail
    if trail is None:
        raise SandboxUnavailable(
            "the audit trail could not be opened", remedy="`sandboxctl status` says why"
        )
    return trail
