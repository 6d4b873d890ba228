"""After a denial: the result offers an approval that widens the plan, or the result is held and the
command runs again once the approval is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio.to_thread
import msgspec
from msgspec.structs import replace

from sandboxd.policy.plan import Plan
from sandboxd.policy.plan_cache import PlanCache
from sandboxd.policy.request import PolicyRequest
from sandboxd.supervisor.approvals.admission import Admission, Waiter, look_at_files
from sandboxd.supervisor.approvals.approval import Approval
from sandboxd.supervisor.approvals.questions import CHANGED, widen_question
from sandboxd.supervisor.execution.execution import Execution
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd.supervisor.sessions.lifecycle import SessionLifecycle
from sandboxd.supervisor.supervisor import Supervisor
from sandboxd.supervisor.widening import addition_for, folders_of, merge_addition
from sandboxd_proto.denial import Denial
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.messages.approval import Addition
from sandboxd_proto.messages.execute import Attempt, ExecuteResult, Widening

MOST_ATTEMPTS = 4  # the first, and three more
TellPending = Callable[[Execution, Approval], None]


class DenialFollowUp:
    def __init__(
        self, supervisor: Supervisor, admission: Admission, plans: PlanCache,
        lifecycle: SessionLifecycle, tell_pending: TellPending,
    ) -> None:  # fmt: skip
        self._supervisor = supervisor
        self._admission = admission
        self._plans = plans
        self._lifecycle = lifecycle
        self._tell_pending = tell_pending

    async def __call__(self, execution: Execution, result: ExecuteResult) -> ExecuteResult:
        """The result that the client gets."""
        first, current = execution, execution
        attempts: list[Attempt] = []
        warnings: tuple[str, ...] = ()
        while True:
            retries = _may_retry(current.request) and len(attempts) + 1 < MOST_ATTEMPTS
            approval = await self._ask(current, result, warnings, held=retries)
            if approval is None:
                break
            if not retries:
                result = _with_widening(result, approval)
                break
            add = await self._wait(first, current, approval)
            if add is not None and await self._is_changed(current.request, approval):
                warnings = (CHANGED,)
                continue
            wider = await self._wider(current.request, add) if add is not None else None
            warnings = ()
            if wider is None:
                result = _with_widening(result, approval)
                break
            attempts.append(_attempt(result))
            result = await self._supervisor.run_again(current, wider)
            current = _last(first)
        return msgspec.structs.replace(result, attempts=attempts) if attempts else result

    async def _is_changed(self, request: ExecuteRequest, approval: Approval) -> bool:
        """Whether a file that the command names was changed while the question waited."""
        files = await look_at_files(request.argv, request.plan.cwd)
        return self._admission.run_request(request, files).digest() != approval.run_digest

    async def _ask(
        self, execution: Execution, result: ExecuteResult, warnings: Sequence[str], *, held: bool
    ) -> Approval | None:
        """The approval that would allow what was denied; None if nothing can be offered.

        `held`: the answer waits for it.
        """
        request, admission = execution.request, self._admission
        session, policy, plan = request.session, request.policy, request.plan
        if session is None or policy is None or not session.is_open or not result.denials:
            return None
        if admission.is_planning(session) or execution.cancelled:
            return None
        offer = partial(self._offer, result.denials, policy, plan)
        add, folders = await anyio.to_thread.run_sync(offer)
        if add is None:
            return None
        files = await look_at_files(request.argv, request.plan.cwd)
        asked = admission.run_request(request, files)
        because = [msgspec.to_builtins(denial) for denial in result.denials]
        question = widen_question(asked, add, because, folders=folders, warnings=warnings)
        try:
            admission.check_refused(session, question.subject)
            approval = admission.approvals.ask(question, held=held)
        except SandboxdError:
            return None  # refused for the session, or too many wait
        approval.workspace = plan.grants_workspace
        approval.run_digest = asked.digest()
        return approval

    def _offer(
        self, denials: Sequence[Denial], policy: PolicyRequest, plan: Plan
    ) -> tuple[Addition | None, Addition | None]:
        """In a thread: each addition is tried by planning with it."""
        add = addition_for(denials, policy, plan, self._plans.look)
        return add, folders_of(add, policy, plan, self._plans.look) if add is not None else None

    async def _wait(
        self, first: Execution, current: Execution, approval: Approval
    ) -> Addition | None:
        """What was allowed; None if it was not, or the request was cancelled."""
        waiter = Waiter(
            connection=current.request.owner, cancelled=first.cancel_asked,
            pending=lambda waiting: self._tell_pending(current, waiting),
        )  # fmt: skip
        if not await self._admission.wait(approval, None, waiter):
            return None
        if approval.state != "allowed" or approval.resolution is None:
            return None
        if approval.run_digest is not None and current.request.session is not None:
            current.request.session.widenings.pop(approval.run_digest, None)
        choice = approval.resolution.choice
        chosen = next((c for c in approval.question.choices if c.choice == choice), None)
        return (chosen.add if chosen is not None else None) or approval.question.add

    async def _wider(self, request: ExecuteRequest, add: Addition) -> ExecuteRequest | None:
        """The request with the wider plan; None if it no longer may run. The caller starts it
        without a wait: others may start while the plan is made."""
        assert request.session is not None
        try:
            plan, policy = await widen_plan(request, add, self._plans)
            if not request.session.is_open or self._admission.is_planning(request.session):
                return None
            time_left_s = self._lifecycle.check_start(request.session)
        except SandboxdError:
            return None
        tmps = self._admission.sessions.tmps
        if tmps is not None:
            plan = tmps.plan_with(request.session, plan)
        if time_left_s is not None:
            timeout = plan.timeout_s
            plan = replace(
                plan, timeout_s=time_left_s if timeout is None else min(time_left_s, timeout)
            )
        listener = request.listener.next_attempt() if request.listener is not None else None
        return replace(
            request, plan=plan, policy=policy, attempt=request.attempt + 1, listener=listener
        )


async def widen_plan(request: ExecuteRequest, add: Addition, plans: PlanCache) -> tuple[Plan, Any]:
    assert request.policy is not None
    policy = request.policy
    merged = merge_addition(policy.manifest, add, request.plan)
    if merged is None:
        return request.plan, policy
    policy = replace(policy, manifest=merged, manifest_given=True, preset=request.plan.preset)
    return plans.keep(policy, await anyio.to_thread.run_sync(plans.attempt, policy)), policy


def _may_retry(request: ExecuteRequest) -> bool:
    """Not with input that cannot be sent again, and not in a persistent sandbox."""
    once = request.stdin_open or request.pty is not None or request.sandbox is not None
    return request.on_denial == "retry" and not once and not request.had_fds


def _last(execution: Execution) -> Execution:
    while execution.successor is not None:
        execution = execution.successor
    return execution


def _attempt(result: ExecuteResult) -> Attempt:
    return Attempt(
        outcome=result.outcome, exit_code=result.exit_code, duration_ms=result.duration_ms,
        denials=result.denials,
    )  # fmt: skip


def _with_widening(result: ExecuteResult, approval: Approval) -> ExecuteResult:
    found = approval.resolution
    widening = Widening(
        approval=approval.id, add=approval.question.add or {}, state=approval.state,
        choice=found.choice if found else None, message=found.message if found else None,
    )  # fmt: skip
    return msgspec.structs.replace(result, widening=widening)
