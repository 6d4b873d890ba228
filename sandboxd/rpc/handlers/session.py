"""`session/*`: open, attach, change, close, list and charge sessions."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sandboxd.policy.paths.canonical import check_spelling
from sandboxd.policy.presets import preset
from sandboxd.rpc.dispatch import later
from sandboxd.rpc.handlers.admission import approve
from sandboxd.rpc.request_context import RequestContext
from sandboxd.supervisor.approvals.display import escape_hidden
from sandboxd.supervisor.budgets import ledger
from sandboxd.supervisor.budgets.amounts import charge_of
from sandboxd.supervisor.sessions.modes import ModeChoice, is_wider, parse_mode
from sandboxd.supervisor.sessions.registry import check_texts
from sandboxd.supervisor.sessions.session import Session
from sandboxd_proto.errors import InvalidParams, NotFound, SandboxdError
from sandboxd_proto.messages.approval import ApprovalKind
from sandboxd_proto.messages.execution import NoParams
from sandboxd_proto.messages.session import (
    Budget,
    Charged,
    ChargeParams,
    SessionAttachParams,
    SessionClosed,
    SessionInfo,
    SessionList,
    SessionOpened,
    SessionOpenParams,
    SessionRef,
    SessionUpdateParams,
)
from sandboxd_proto.secret import Secret


@later
async def open_(call: RequestContext, params: SessionOpenParams) -> SessionOpened:
    """Without `parent` the connection is attached, as a child if it was attached already."""
    service = call.service
    sessions = service.admission.sessions
    choice = _mode(params.mode, "default", params.plan)
    _check_workspace(params.workspace)
    if params.name is not None and params.token is not None:
        live = sessions.named(params.name)
        if live is not None:
            sessions.attach(call.connection, live.id, params.token)
            return _opened(live, params.token, resumed=True)
    if params.name is not None:
        sessions.check_name(params.name, params.token)
    parent = _parent(call, params)
    if is_wider(choice.mode, service.machine.config.approvals.widest_mode):
        text = f"open a session in mode {choice.mode}{_titled(params.title)}?"
        change = {"mode": choice.mode, "name": params.name, "title": params.title}
        await approve(call, call.session(), text, change)
        parent = _parent(call, params)  # it may have been closed or narrowed meanwhile
    if params.preset is not None:
        preset(params.preset)
    if parent is not None:
        service.lifecycle.check_depth(parent)
    session, token, resumed = sessions.open(
        parent,
        mode=choice.mode,
        plan=bool(choice.plan),
        name=params.name,
        title=params.title,
        preset=params.preset,
        workspace=params.workspace,
        budget=params.budget,
        on_denial=params.on_denial,
        linger_secs=params.linger_secs,
        token=params.token,
    )
    try:
        service.admission.recorder.session("opened", session, call.requester, must=True)
    except SandboxdError:
        await service.lifecycle.close(session, call.requester)
        raise
    if params.parent is None:
        sessions.move(call.connection, session)
    else:
        session.left_at = time.monotonic()
    service.hub.session_changed(session, besides=call.connection)
    await sessions.store.written()
    return _opened(session, token, resumed=resumed)


def _check_workspace(workspace: str | None) -> None:
    """Whether it exists is checked when a request uses it: it may be made later."""
    if workspace is not None:
        check_spelling(workspace, "workspace")


def _parent(call: RequestContext, params: SessionOpenParams) -> Session | None:
    sessions = call.service.admission.sessions
    before = sessions.attached(call.connection)
    if params.parent is not None:
        return sessions.find(call.session(), params.parent)
    # A connection whose session was closed may open another one.
    return before if before is not None and before.is_open and not before.implicit else None


def _titled(title: str | None) -> str:
    return f" for {escape_hidden(title)}" if title else ""


def _opened(session: Session, token: Secret, *, resumed: bool) -> SessionOpened:
    info = session.info(time.monotonic())
    fields = {name: getattr(info, name) for name in info.__struct_fields__}
    return SessionOpened(
        **fields, token=token, resumed=resumed, tmp="session" if session.tmp else "fresh"
    )


def attach(call: RequestContext, params: SessionAttachParams) -> SessionInfo:
    session = call.service.admission.sessions.attach(call.connection, params.session, params.token)
    call.service.hub.session_changed(session, besides=call.connection)
    return session.info(time.monotonic())


@later
async def update(call: RequestContext, params: SessionUpdateParams) -> SessionInfo:
    """An approver's change takes effect at once; a worker's waits for an approval if it widens."""
    if call.is_approver and params.session in (None, ledger.USER):
        return await _update_daemon(call, params)
    service = call.service
    session = call.any_session(params.session)
    if session.implicit:
        raise InvalidParams(
            "this connection has opened no session", field="session",
            remedy="open one with session/open",
        )  # fmt: skip
    check_texts(None, params.title)
    _check_workspace(params.workspace)
    if not call.is_approver:
        await _approve_widening(call, session, params)
    choice, plan, budget = _wanted(session, params)
    switched_on = plan and not session.plan
    session.mode, session.plan = choice.mode, plan
    larger = _is_larger(budget, session.account.limits)
    session.account.limits = ledger.check_budget(budget)
    for name in ("title", "preset", "workspace", "on_denial"):
        value = getattr(params, name)
        if value is not None:
            setattr(session, name, value)
    if switched_on:
        _end_waiting(call, session.family)
    if larger:
        service.lifecycle.budget_raised(session)
    else:
        service.admission.sessions.remember(session)
        service.admission.recorder.session("changed", session, call.requester)
        service.hub.session_changed(session)
    await service.admission.sessions.store.written()
    await service.admission.recorder.durable()
    return session.info(time.monotonic())


def _wanted(session: Session, params: SessionUpdateParams) -> tuple[ModeChoice, bool, Budget]:
    choice = (
        _mode(params.mode, session.mode, params.plan)
        if params.mode is not None
        else ModeChoice(session.mode, params.plan)
    )
    plan = session.plan if choice.plan is None else choice.plan
    budget = session.account.limits if params.budget is None else _merged(session, params.budget)
    if params.preset is not None:
        preset(params.preset)
    return choice, plan, ledger.check_budget(budget)


async def _approve_widening(
    call: RequestContext, session: Session, params: SessionUpdateParams
) -> None:
    """Narrowing is at once; a wider mode, leaving plan mode and a larger budget are asked about.
    The session may be narrowed while a question waits, so what is left to ask is worked out again:
    an approval allows what it said, and nothing else."""
    approved: list[dict[str, object]] = []
    while True:
        choice, plan, budget = _wanted(session, params)
        if session.parent is not None and is_wider(choice.mode, session.parent.mode):
            sessions = call.service.admission.sessions
            raise sessions.wider_than_parent_error(choice.mode, session.parent)
        kind, change = _widening(session, choice, plan, budget, approved)
        if not change:
            return
        await approve(call, session, _widening_text(change), change, kind)
        if not session.is_open:
            raise NotFound(f"the session {session.id} was closed", field="session")
        approved.append(change)


def _widening(
    session: Session, choice: ModeChoice, plan: bool, budget: Budget,
    approved: list[dict[str, object]],
) -> tuple[ApprovalKind, dict[str, object]]:  # fmt: skip
    """What of a change needs an approval that it does not have yet."""
    change: dict[str, object] = {}
    if is_wider(choice.mode, session.mode):
        change["mode"] = choice.mode
    if session.plan and not plan:
        change["plan"] = False
    if change and change not in approved:
        return "session", change
    limits = session.account.limits
    raised = {n: new for n, new in _fields(budget).items() if new != getattr(limits, n)}
    if _is_larger(budget, limits) and {"budget": raised} not in approved:
        return "budget", {"budget": raised}
    return "session", {}


def _widening_text(change: Mapping[str, object]) -> str:
    if "budget" in change:
        return "give the session a larger budget?"
    words = [f"work in mode {change['mode']}"] if "mode" in change else []
    words += ["leave plan mode"] if "plan" in change else []
    return f"let the session {' and '.join(words)}?"


async def _update_daemon(call: RequestContext, params: SessionUpdateParams) -> SessionInfo:
    """An approver has no session of its own: what it updates is the user's whole daemon, of which
    only the plan flag can be set. It applies to every session and is stored."""
    given = {
        name for name in params.__struct_fields__
        if name not in ("session", "plan") and getattr(params, name) is not None
    }  # fmt: skip
    if params.plan is None or given:
        raise InvalidParams(
            "of the daemon as a whole only `plan` can be set", field=min(given, default="plan"),
            remedy="name a session to change it",
        )  # fmt: skip
    admission = call.service.admission
    switched_on = params.plan and not admission.sessions.plan_mode
    admission.sessions.set_plan_mode(params.plan)
    if switched_on:
        _end_waiting(call, None)
    await admission.sessions.store.written()
    admission.recorder.write(
        "session.changed", {"plan": params.plan, "state": "open"}, session=ledger.USER,
        client=call.requester,
    )  # fmt: skip
    await admission.recorder.durable()
    info = admission.sessions.user_info(time.monotonic())
    call.service.hub.tell(call.service.hub.approvers, "session/changed", info)
    return info


def _end_waiting(call: RequestContext, family: set[str] | None) -> None:
    """Plan mode was switched on: it refuses what waits, wider modes too. `family`: the sessions
    that it holds for; None: all. Requests for a larger budget stay."""
    approvals = call.service.admission.approvals
    for approval in approvals.pending():
        question = approval.question
        if question.kind == "budget" or question.effect == "read":
            continue
        if family is None or question.session in family:
            approvals.end(approval, "plan")


def _mode(name: str, present: str, plan: bool | None) -> ModeChoice:
    choice = parse_mode(name, present)  # type: ignore[arg-type]
    return ModeChoice(choice.mode, choice.plan if plan is None else plan)


def _fields(budget: Budget) -> dict[str, object]:
    return {name: getattr(budget, name) for name in budget.__struct_fields__}


def _merged(session: Session, given: Budget) -> Budget:
    """A field that is left out stays."""
    kept = _fields(session.account.limits)
    return Budget(**{**kept, **{k: v for k, v in _fields(given).items() if v is not None}})  # type: ignore[arg-type]


def _is_larger(one: Budget, than: Budget) -> bool:
    for name in one.__struct_fields__:
        new, old = getattr(one, name), getattr(than, name)
        if old is not None and (new is None or new > old):
            return True
    return False


@later
async def close(call: RequestContext, params: SessionRef) -> SessionClosed:
    closed = _closed_own(call, params.session)
    if closed is not None:
        return SessionClosed(executions=0, approvals=0)
    session = call.any_session(params.session)
    if session.implicit:
        raise InvalidParams(
            "this connection has opened no session", field="session",
            remedy="name one, or end the connection",
        )  # fmt: skip
    return await call.service.lifecycle.close(session, call.requester)


def _closed_own(call: RequestContext, session_id: str | None) -> Session | None:
    """The connection's own session if it is closed already: closing is idempotent."""
    own = call.service.admission.sessions.attached(call.connection)
    if own is None or own.is_open or session_id not in (None, own.id):
        return None
    return own


def list_(call: RequestContext, params: NoParams) -> SessionList:
    sessions = call.service.admission.sessions
    found = sessions.all() if call.is_approver else _visible(call)
    return SessionList(sessions=[one.info(time.monotonic()) for one in found])


def _visible(call: RequestContext) -> list[Session]:
    caller = call.session()
    return [one for one in caller.downwards() if not one.implicit][::-1]


@later
async def charge(call: RequestContext, params: ChargeParams) -> Charged:
    """The amounts are the caller's. A refused charge changes nothing."""
    session = call.session(params.session)
    amounts = charge_of(params.tokens_in, params.tokens_out, params.cost_usd)
    repeated = await call.service.lifecycle.charge(session, amounts, params.request_id)
    if not repeated:
        call.service.admission.recorder.write(
            "budget.charged",
            {"tokens_in": amounts.tokens_in, "tokens_out": amounts.tokens_out,
             "cost_usd": params.cost_usd, "request_id": params.request_id},
            session=session.id, client=call.requester,
        )  # fmt: skip
    now = time.monotonic()
    return Charged(
        usage=session.account.usage(now),
        fraction=ledger.fraction(session.account, now),
        repeated=repeated,
    )
