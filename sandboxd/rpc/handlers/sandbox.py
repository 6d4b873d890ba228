"""`sandbox/*`: sandboxes that outlive one command."""

from __future__ import annotations

from typing import Any

import msgspec

from sandboxd.progress import ReportProgress
from sandboxd.rpc.dispatch import later
from sandboxd.rpc.handlers.admission import (
    Widened,
    approve,
    check_mode,
    hold_sandbox,
    widen_by_grants,
    with_session_defaults,
)
from sandboxd.rpc.handlers.execution import NOTHING
from sandboxd.rpc.handlers.plan_preparation import prepare_plan
from sandboxd.rpc.handlers.usable_sandbox import find_sandbox, find_usable, may_see
from sandboxd.rpc.policy_request import policy_request_of
from sandboxd.rpc.request_context import RequestContext
from sandboxd.supervisor.approvals.display import escape_hidden
from sandboxd.supervisor.sandboxes.forward import Forward
from sandboxd.supervisor.sandboxes.persistent import (
    MadeFrom,
    NameAndScope,
    PersistentSandbox,
    new_id,
)
from sandboxd.supervisor.sessions.modes import decide
from sandboxd_proto.errors import ApprovalDenied, NotFound, SandboxdError
from sandboxd_proto.messages.execution import NoParams, Nothing
from sandboxd_proto.messages.notifications import Progress
from sandboxd_proto.messages.sandbox import (
    Forwarded,
    ForwardParams,
    SandboxCreated,
    SandboxCreateParams,
    SandboxDetails,
    SandboxInfo,
    SandboxList,
    SandboxRef,
    UnforwardParams,
)


@later
async def create(call: RequestContext, params: SandboxCreateParams) -> SandboxCreated:
    session = call.session(params.session)
    policy = with_session_defaults(call, session, policy_request_of(params))
    await prepare_plan(call, policy)
    sent = call.plan_for(policy)
    supervisor, sessions = call.service.supervisor, call.service.admission.sessions
    supervisor.sandboxes.check_name(params.name)
    found = check_mode(call, session, sent)
    approval = None
    if found.decision == "ask":
        approval = await hold_sandbox(call, session, sent, found, params.approval_wait_secs)
        session = call.session(params.session)  # it may have been closed while it waited
    while not isinstance(wider := widen_by_grants(call, session, policy, sent), Widened):
        await wider()
    plan = wider.plan
    if params.scope != "user" and sessions.tmps is not None:
        # A sandbox that outlives its session has its own /tmp.
        plan = sessions.tmps.plan_with(session, plan)
    named = NameAndScope(params.scope, params.name, call.connection, new_id())
    tell = _teller(call, named)
    made_from = MadeFrom(wider.policy, wider.plan)
    made = await supervisor.create_sandbox(plan, made_from, params.idle_secs, session, named, tell)
    return SandboxCreated(
        sandbox=made.id, name=made.name, backend=made.backend.name, workspace=plan.workspace,
        approval=approval,
    )  # fmt: skip


def _teller(call: RequestContext, named: NameAndScope) -> ReportProgress:
    """By its name where it has one: the id is not known to the client yet."""

    def tell(phase: str, done: int, total: int | None) -> None:
        sandbox = named.name or named.id or msgspec.UNSET
        params = Progress(sandbox=sandbox, phase=phase, done=done, total=total)
        call.connection.notify("execution/progress", params)

    return tell


def list_(call: RequestContext, params: NoParams) -> SandboxList:
    found = call.service.supervisor.sandboxes.all()
    return SandboxList(
        sandboxes=[SandboxInfo(**_facts(one)) for one in found if may_see(call, one)]
    )


def get(call: RequestContext, params: SandboxRef) -> SandboxDetails:
    sandboxes = call.service.supervisor.sandboxes
    try:
        found = sandboxes.find_or_lost(params.sandbox, lambda kept: may_see(call, kept))
    except NotFound:
        _refuse_command(call, params.sandbox)
        raise
    if found.lost:
        return SandboxDetails(**_facts(found), state="lost")
    return SandboxDetails(**_facts(found), state="up", forwards=_forwards(found))


def _refuse_command(call: RequestContext, name: str) -> None:
    """NotFound that says so if `name` is that of a command in a sandbox of its own."""
    executions = call.service.supervisor.executions.usable(call.reader, ended=True)
    if any(one.id == name and one.sandbox_id is None for one in executions):
        raise NotFound(
            f"{name!r} is a command, and no sandbox: only a sandbox that stays has forwards",
            field="sandbox",
            remedy="`sandbox/create` makes one; run the command in it",
        ) from None


def _forwards(found: PersistentSandbox) -> list[Forwarded]:
    return [_forwarded(one) for one in found.forwards.values()]


def _forwarded(one: Forward) -> Forwarded:
    return Forwarded(forward=one.id, endpoint=one.endpoint, port=one.port)


def _facts(found: PersistentSandbox) -> dict[str, Any]:
    return {
        "sandbox": found.id,
        "name": found.name,
        "scope": found.scope,
        "backend": found.backend.name,
        "workspace": found.plan.workspace,
        "session": found.session.id if found.session is not None else None,
        "created_ms": round(found.created_at * 1000, 3),
        "executions": len(found.commands),
        "watched": found.plan.sandbox.watched,
    }


@later
async def destroy(call: RequestContext, params: SandboxRef) -> Nothing:
    await call.service.supervisor.sandboxes.destroy(find_sandbox(call, params.sandbox))
    return NOTHING


@later
async def forward(call: RequestContext, params: ForwardParams) -> Forwarded:
    """Needs an approval like `reach`: a forward connects the sandbox with the host."""
    kept = find_sandbox(call, params.sandbox)
    session, admission = call.session(), call.service.admission
    check_mode(call, session, kept.plan, kept.session)
    decision = decide("reach", admission.mode_of(session), admission.is_planning(session))
    if decision == "refuse":
        raise ApprovalDenied(
            "the session is in plan mode: no port can be forwarded", reason="plan",
            flagged=admission.plan_flags(session), remedy="ask to leave plan mode",
        )  # fmt: skip
    if decision == "ask":
        name = escape_hidden(kept.name or kept.id)
        text = f"forward port {params.port} of the sandbox {name}?"
        change = {"forward": {"port": params.port, "listen": params.listen, "sandbox": kept.id}}
        await approve(call, session, text, change, "sandbox")
    kept = await find_usable(call, params.sandbox)
    sandboxes = call.service.supervisor.sandboxes
    made = sandboxes.forward(kept, params.port, params.listen)
    facts = {"sandbox": kept.id, "forward": made.id, "port": params.port}
    try:
        admission.recorder.write(
            "forward.opened", {**facts, "endpoint": made.endpoint}, session=session.id,
            client=call.requester, must=True,
        )  # fmt: skip
    except SandboxdError:
        sandboxes.unforward(kept, made.id)
        raise
    return _forwarded(made)


def unforward(call: RequestContext, params: UnforwardParams) -> Nothing:
    sandboxes = call.service.supervisor.sandboxes
    sandboxes.unforward(find_sandbox(call, params.sandbox), params.forward)
    return NOTHING
