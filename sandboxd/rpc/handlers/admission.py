"""Check a request against its session's mode, and wait for an approval if that demands one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import anyio
import msgspec
from msgspec.structs import replace

from sandboxd.policy.plan import Plan
from sandboxd.policy.request import PolicyRequest
from sandboxd.rpc.handlers.plan_preparation import prepare_plan, wait_for_plan
from sandboxd.rpc.handlers.usable_sandbox import find_usable
from sandboxd.rpc.request_context import RequestContext
from sandboxd.supervisor.approvals.admission import Judged, Waiter, look_at_files, plan_mode_error
from sandboxd.supervisor.approvals.approval import Approval, session_closed_error
from sandboxd.supervisor.approvals.grants import ApprovedGrant
from sandboxd.supervisor.approvals.questions import RunRequest, session_question
from sandboxd.supervisor.execution.execution import Execution
from sandboxd.supervisor.execution.result import never_ran
from sandboxd.supervisor.follow_up import widen_plan
from sandboxd.supervisor.hanging_mount_checks import Wait
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd.supervisor.sessions.session import Session
from sandboxd.supervisor.widening import merge_addition
from sandboxd_proto.errors import ApprovalDenied, PathDenied, SandboxdError
from sandboxd_proto.messages.approval import ApprovalKind
from sandboxd_proto.messages.execute import Detached, ExecuteResult


def check_mode(
    call: RequestContext, session: Session, plan: Plan, creator: Session | None = None,
    *, is_widened: bool = False,
) -> Judged:  # fmt: skip
    """Refuses in plan mode; otherwise says whether an approval is needed."""
    found = call.service.admission.judge(session, plan, creator=creator, is_widened=is_widened)
    if found.decision == "refuse":
        raise plan_mode_error(found.effect, call.service.admission.plan_flags(session))
    return found


def within_budget(call: RequestContext, request: ExecuteRequest) -> ExecuteRequest:
    """Shorten the timeout to what the budget leaves."""
    assert request.session is not None
    left = call.service.lifecycle.check_start(request.session)
    if left is None:
        return request
    timeout = request.plan.timeout_s
    if timeout is not None and timeout <= left:
        return request
    return replace(request, plan=replace(request.plan, timeout_s=left), timeout_is_budget=True)


def with_session_defaults(
    call: RequestContext, session: Session, policy: PolicyRequest
) -> PolicyRequest:
    """A request that names neither preset nor manifest has the session's preset; in plan mode
    `read-only`."""
    if policy.preset is not None or policy.manifest_given:
        return policy
    if call.service.admission.is_planning(session):
        return replace(policy, preset="read-only", workspace=policy.workspace or session.workspace)
    if session.implicit:
        return policy
    return replace(policy, preset=session.preset, workspace=policy.workspace or session.workspace)


class Widened(NamedTuple):
    """A plan with what grants add to it, and the ids of the grants that were used."""

    plan: Plan
    policy: PolicyRequest
    grants: tuple[str, ...] = ()


def widen_by_grants(
    call: RequestContext, session: Session, policy: PolicyRequest, sent: Plan
) -> Widened | Wait:
    """Or what to await before it can be planned on the event loop. A grant that no longer fits (its
    path is gone, the ceiling forbids it) is left out."""
    plan, used = sent, []
    for grant in _additions(call, session, sent):
        wider = _wider(policy, grant, sent)
        if wider is None:
            continue
        try:
            wait = wait_for_plan(call, wider)
            if wait is not None:
                return wait
            plan = call.plan_for(wider)
        except SandboxdError:
            continue
        policy = wider
        used.append(grant.id)
    return Widened(plan, policy, tuple(used))


def _additions(call: RequestContext, session: Session, sent: Plan) -> list[ApprovedGrant]:
    admission = call.service.admission
    if sent.backend == "none" or admission.is_planning(session):
        return []
    return admission.grants.additions(session, sent.grants_workspace)


def _wider(policy: PolicyRequest, grant: ApprovedGrant, sent: Plan) -> PolicyRequest | None:
    merged = merge_addition(policy.manifest, grant.add or {}, sent)
    if merged is None:
        return None
    return replace(policy, manifest=merged, manifest_given=True, preset=sent.preset)


async def hold_detached(call: RequestContext, execution: Execution, found: Judged) -> Detached:
    """Return when the approval exists; the execution waits for it in the background."""
    asked = anyio.Event()
    approval_id: list[str] = []

    def tell(approval: Approval) -> None:
        approval_id.append(approval.id)
        asked.set()

    async def run() -> None:
        try:
            execution.result = await hold_and_run(call, execution, found, None, tell)
        except SandboxdError as error:
            execution.error = error
        finally:
            asked.set()
            call.service.supervisor.executions.ended(execution)

    call.service.supervisor.start_background(run)
    await asked.wait()
    return Detached(
        execution_id=execution.id, approval=approval_id[0] if approval_id else msgspec.UNSET
    )


async def hold_and_run(
    call: RequestContext, execution: Execution, found: Judged, wait_secs: float | None,
    tell: Callable[[Approval], None] | None = None,
) -> ExecuteResult:  # fmt: skip
    """Wait for the approval where one is needed, then run. The command's own clock, its session's
    tool runtime and its sandbox start after the decision."""
    supervisor = call.service.supervisor
    try:
        if found.decision == "ask" and not await _ask(call, execution, wait_secs, tell):
            execution.result = never_ran(execution.id, execution.request, None, {})
            supervisor.give_up(execution)
            return execution.result
        if found.decision == "ask":
            await _plan_again(call, execution)
        await _use_widening(call, execution)
        execution.request = within_budget(call, execution.request)
    except BaseException as error:
        supervisor.give_up(execution)
        if isinstance(error, SandboxdError):
            execution.error = error
            record_refusal(call, execution.request, error)
        raise
    supervisor.start_clock(execution)
    return await supervisor.run(execution)


async def _plan_again(call: RequestContext, execution: Execution) -> None:
    """After a wait: what came into being meanwhile (a repository, a secret) is protected, too."""
    request, admission = execution.request, call.service.admission
    if request.sandbox is not None:
        await find_usable(call, request.sandbox)
    if request.policy is None or request.session is None:
        return
    call.prepared.clear()
    await prepare_plan(call, request.policy)
    plan = call.plan_for(request.policy)
    before = admission.judge(request.session, request.plan, is_widened=True)
    if admission.judge(request.session, plan, is_widened=True).effect != before.effect:
        raise PathDenied(
            "what the command could do changed while it waited for the approval",
            remedy="send the request again",
        )
    tmps = admission.sessions.tmps
    if request.session.tmp is not None and tmps is not None:
        plan = tmps.plan_with(request.session, plan)
    execution.request = replace(request, plan=plan)


async def _ask(
    call: RequestContext, execution: Execution, wait_secs: float | None,
    tell: Callable[[Approval], None] | None,
) -> bool:  # fmt: skip
    """False if it was cancelled while it waited."""
    admission, request = call.service.admission, execution.request

    def pending(approval: Approval) -> None:
        if tell is not None:
            tell(approval)
        approvals = call.service.admission.approvals
        call.service.hub.tell_pending(call.connection, execution.id, approval, approvals)

    async def look() -> RunRequest:
        files = await look_at_files(request.argv, request.plan.cwd)
        return admission.run_request(replace(request, execution_id=execution.id), files)

    waiter = Waiter(
        connection=call.connection, cancelled=execution.cancel_asked, pending=pending,
        gone=lambda: call.connection.is_gone and not request.detach,
    )  # fmt: skip
    admitted = await admission.ask(await look(), wait_secs=wait_secs, waiter=waiter, again=look)
    if admitted is not None:
        execution.approval = admitted.approval
    return admitted is not None


async def _use_widening(call: RequestContext, execution: Execution) -> None:
    """Use an addition that was allowed once for a request with this digest."""
    request, admission = execution.request, call.service.admission
    session = request.session
    if session is None or not session.widenings or request.policy is None:
        return
    files = await look_at_files(request.argv, request.plan.cwd)
    kept = session.widenings.pop(admission.run_request(request, files).digest(), None)
    if kept is None:
        return
    approval_id, add = kept
    plan, policy = await widen_plan(request, add, call.service.plans)
    tmps = admission.sessions.tmps
    plan = tmps.plan_with(session, plan) if tmps is not None else plan
    execution.request = replace(request, plan=plan, policy=policy)
    execution.approval = approval_id


def record_refusal(call: RequestContext, request: ExecuteRequest, error: SandboxdError) -> None:
    session = request.session.id if request.session is not None else None
    call.service.admission.recorder.refused(
        session, call.requester, request.argv, request.plan.env, error
    )


async def hold_sandbox(
    call: RequestContext, session: Session, plan: Plan, found: Judged, wait_secs: float | None
) -> str | None:
    """Wait until the sandbox may be opened. Returns the approval that allowed it."""
    admission = call.service.admission
    asked = RunRequest(session, call.requester, plan, found.effect, admission.family_of(plan))

    async def again() -> RunRequest:
        return asked

    cancelled = call.cancelled()
    waiter = Waiter(connection=call.connection, cancelled=cancelled)
    admitted = await admission.ask(asked, wait_secs=wait_secs, waiter=waiter, again=again)
    if admitted is None:
        raise ApprovalDenied("the request was cancelled while it waited", reason="cancelled")
    return admitted.approval


async def approve(
    call: RequestContext,
    session: Session,
    text: str,
    change: Mapping[str, object],
    kind: ApprovalKind = "session",
) -> None:
    """Wait for an approval; raises the error of a refusal or a timeout."""
    admission = call.service.admission
    question = session_question(session, call.requester, text, change, kind)
    approval = admission.approvals.ask(question, held=True)
    waiter = Waiter(connection=call.connection, cancelled=call.cancelled())
    if not await admission.wait(approval, None, waiter):
        raise ApprovalDenied("the request was cancelled while it waited", reason="cancelled")
    approval.used_once = True
    if approval.state != "allowed":
        raise approval.refusal()
    if not session.is_open:
        raise session_closed_error(approval.id)
