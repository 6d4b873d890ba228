"""`approval/*`: list, decide and wait for approvals."""

from __future__ import annotations

import anyio

from sandboxd.rpc.dispatch import later
from sandboxd.rpc.handlers.execution import check_timeout
from sandboxd.rpc.request_context import RequestContext
from sandboxd.supervisor.approvals.approval import Approval
from sandboxd.supervisor.approvals.queue import no_approval_error
from sandboxd_proto.errors import Unauthorized
from sandboxd_proto.messages.approval import (
    ApprovalInfo,
    ApprovalList,
    ApprovalListParams,
    ApprovalWaitParams,
    DecideParams,
)


def list_(call: RequestContext, params: ApprovalListParams) -> ApprovalList:
    approvals = call.service.admission.approvals
    family = _family(call, params.session)
    found = [
        approval.info() for approval in approvals.all()
        if approval.state == params.state
        and (family is None or approval.question.session in family)
    ]  # fmt: skip
    return ApprovalList(approvals=found, approvers=approvals.approvers)


def _family(call: RequestContext, session_id: str | None) -> set[str] | None:
    """The sessions whose approvals are meant; None for all of them."""
    if call.is_approver and session_id is None:
        return None
    return call.any_session(session_id).family


@later
async def decide(call: RequestContext, params: DecideParams) -> ApprovalInfo:
    service = call.service
    admission = service.admission
    approval = admission.approvals.find(params.approval)
    if call.connection.former_sessions & _relatives(call, approval):
        raise Unauthorized(
            "a connection cannot decide what its own session asked for", reason="own_request",
            remedy="let another connection decide",
        )  # fmt: skip
    await admission.approvals.decide(
        approval, params.digest, params.choice, call.requester, params.message,
        admission.decisions,
    )  # fmt: skip
    if approval.resolution is not None and approval.resolution.grant is not None:
        admission.cover_pending()
    return approval.info()


def _relatives(call: RequestContext, approval: Approval) -> set[str]:
    """The session that asked, those above it and those below it."""
    session = call.service.admission.sessions.get(approval.question.session)
    if session is None:
        return {approval.question.session}
    return session.family | {above.id for above in session.upwards()}


@later
async def wait(call: RequestContext, params: ApprovalWaitParams) -> ApprovalInfo:
    approval = call.service.admission.approvals.find(params.approval)
    if not call.is_approver and approval.question.session not in call.session().family:
        raise no_approval_error(params.approval)
    check_timeout(params.timeout_secs)
    with anyio.move_on_after(params.timeout_secs):
        await approval.resolved.wait()
    return approval.info()
