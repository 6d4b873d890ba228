"""When sessions end: after their linger time, or when their budget is used up."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

import anyio

from sandboxd.config.config import Config
from sandboxd.supervisor.approvals.admission import Admission
from sandboxd.supervisor.approvals.questions import budget_question
from sandboxd.supervisor.budgets import ledger
from sandboxd.supervisor.budgets.amounts import Amounts
from sandboxd.supervisor.budgets.day import DayFile
from sandboxd.supervisor.execution.execution import Execution
from sandboxd.supervisor.sessions.session import Session
from sandboxd.supervisor.sessions.tmp import size_of
from sandboxd.supervisor.supervisor import Supervisor
from sandboxd_proto.errors import BudgetExceeded, Busy
from sandboxd_proto.messages.approval import Requester
from sandboxd_proto.messages.session import BudgetNotice, SessionClosed

LOOK_S = 0.2
REPEAT_EXCEEDED_S = 60.0
END_S = 5.0
SUM_THREADS = 4
MOST_TOLD = 4096
TIME_LIMITS = ("max_wall_time_secs", "max_tool_runtime_secs")


class Audience(Protocol):
    """Receives notifications: the connections of sessions, and approvers."""

    approvers: set[Any]

    def tell(self, connections: Iterable[Any], method: str, params: Any) -> None: ...
    def session_changed(self, session: Session) -> None: ...


class SessionLifecycle:
    def __init__(
        self, config: Config, supervisor: Supervisor, admission: Admission, day: DayFile,
        audience: Audience,
    ) -> None:  # fmt: skip
        self._config = config
        self._supervisor = supervisor
        self._admission = admission
        self._day = day
        self._audience = audience
        self._charging = anyio.Lock()
        self._told: dict[tuple[str, str], float] = {}
        self._summing: set[str] = set()
        self._sum_threads = anyio.CapacityLimiter(SUM_THREADS)

    async def run(self) -> None:
        """The task that checks the time limits of all sessions. It never waits for the size of a
        /tmp, which commands control."""
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(LOOK_S)
                now = time.monotonic()
                for session in self._admission.sessions.abandoned(now):
                    if session.implicit:
                        self._admission.sessions.forget(session)
                    elif session.is_open:
                        tasks.start_soon(self.close, session, None)
                for session in self._admission.sessions.every():
                    self._end_when_used_up(session, now)
                    busy = session.tmp is not None and session.executions
                    if busy and session.id not in self._summing:
                        self._summing.add(session.id)
                        tasks.start_soon(self._check_tmp, session)

    async def _check_tmp(self, session: Session) -> None:
        """Commands that fill the session's /tmp beyond its size are ended while it grows."""
        try:
            used = await anyio.to_thread.run_sync(
                size_of, session.tmp or "", limiter=self._sum_threads
            )
        finally:
            self._summing.discard(session.id)
        grew, session.tmp_used = used > session.tmp_used, used
        if grew and used > self._config.sessions.tmp_bytes:
            for execution in self._executions(session):
                execution.warn(
                    f"the session's /tmp holds {used} bytes, more than [sessions] tmp_bytes = "
                    f"{self._config.sessions.tmp_bytes}: its commands were ended"
                )
                execution.end("file_size")

    # closing

    async def close(self, session: Session, client: Requester | None) -> SessionClosed:
        """Children first. Waiting requests are cancelled, running commands are killed."""
        admission = self._admission
        executions = approvals = 0
        for one in list(session.downwards()):
            if not one.is_open:
                continue
            admission.sessions.close(one)
            for approval in admission.approvals.pending():
                if approval.question.session == one.id:
                    admission.approvals.end(approval, "session_closed")
                    approvals += 1
            for execution in self._executions(one):
                execution.cancel()
                executions += 1
            admission.grants.forget(one)
            admission.recorder.session("closed", one, client)
            self._audience.session_changed(one)
            await self._supervisor.sandboxes.destroy_of(one)
            await self._remove_tmp(one)
        await admission.sessions.store.written()
        return SessionClosed(executions=executions, approvals=approvals)

    async def _remove_tmp(self, session: Session) -> None:
        tmps = self._admission.sessions.tmps
        if tmps is None or session.tmp is None:
            return
        with anyio.move_on_after(END_S):
            for execution in self._executions(session):
                await execution.finished()
        await self._supervisor.pool.forget_tmp(session.tmp)
        await tmps.remove(session)

    def _executions(self, session: Session) -> list[Execution]:
        return [e for e in self._supervisor.executions if e.request.session is session]

    # budgets

    async def charge(self, session: Session, amounts: Amounts, request_id: str | None) -> bool:
        """Whether it was charged before. BudgetExceeded leaves everything as it was."""
        # Shielded: a cancellation in between would charge only one of the two.
        with anyio.CancelScope(shield=True):
            return await self._charge(session, amounts, request_id)
        raise AssertionError("a shielded scope is not cancelled")

    async def _charge(self, session: Session, amounts: Amounts, request_id: str | None) -> bool:
        async with self._charging:
            if ledger.is_repeated(session.account, request_id, amounts):
                return True
            try:
                ledger.check_charge(session.account, amounts, self._config.session_cap)
                await anyio.to_thread.run_sync(self._day.charge, amounts.cost_micros, time.time())
            except BudgetExceeded as error:
                self.refuse(session, error)
                raise
            ledger.apply_charge(session.account, amounts, request_id)
        self._admission.sessions.remember(session)
        await self._admission.sessions.store.written()
        self.warn(session)
        return False

    def check_start(self, session: Session) -> float | None:
        """Before an execution: the seconds that it may run at the most."""
        now = time.monotonic()
        try:
            ledger.check_start(session.account, now)
        except BudgetExceeded as error:
            self.refuse(session, error)
            raise
        return ledger.seconds_left(session.account, now)

    def check_depth(self, parent: Session) -> None:
        """Before a session below `parent` is opened."""
        try:
            ledger.check_depth(parent.account)
        except BudgetExceeded as error:
            self.refuse(parent, error)
            raise

    def refuse(self, session: Session, error: BudgetExceeded) -> None:
        """Notify the audience. The error names an approval if an approver can allow more."""
        self.tell_exceeded(session, error)
        limited = self._admission.sessions.get(str(error.facts.get("session")))
        if limited is None or limited.implicit or not self._admission.approvals.can_ask:
            return
        reason = str(error.facts["reason"])
        if reason not in limited.account.limits.__struct_fields__:
            return
        question = budget_question(limited, reason, error.facts["observed"], error.facts["limit"])
        with suppress(Busy):
            error.facts["approval"] = self._admission.approvals.ask(question).id

    def _end_when_used_up(self, session: Session, now: float) -> None:
        left = ledger.seconds_left(session.account, now)
        if left is None or session.state != "open":
            return
        self.warn(session)
        if left > 0:
            return
        try:
            ledger.check_start(session.account, now)
        except BudgetExceeded as error:
            if error.facts["reason"] not in TIME_LIMITS:
                return
            self.refuse(session, error)
            self._use_up(session, error)

    def _use_up(self, session: Session, error: BudgetExceeded) -> None:
        approvals = self._admission.approvals
        for approval in approvals.pending():
            question = approval.question
            if question.session == session.id and question.kind not in ("budget", "session"):
                approvals.end(approval, "budget", error)
        for execution in self._executions(session):
            execution.end("budget")
        if not session.implicit:
            session.state = "exhausted"
            self._admission.recorder.session("changed", session)
            self._audience.session_changed(session)

    def budget_raised(self, session: Session) -> None:
        """Sessions at and below it that had used up their time go on if there is time now."""
        now = time.monotonic()
        for one in session.downwards():
            left = ledger.seconds_left(one.account, now)
            if one.state == "exhausted" and (left is None or left > 0):
                one.state = "open"
                if one is not session:
                    self._audience.session_changed(one)
        for approval in self._admission.approvals.pending():
            question = approval.question
            overtaken = question.kind == "budget" and approval.waiting == 0
            if overtaken and question.session == session.id:
                self._admission.approvals.end(approval, "superseded")
        self._admission.sessions.remember(session)
        self._admission.recorder.session("changed", session)
        self._audience.session_changed(session)

    def warn(self, session: Session) -> None:
        for warning in ledger.warnings(session.account, time.monotonic()):
            notice = BudgetNotice(
                session=warning.session, reason=warning.reason, observed=warning.observed,
                limit=warning.limit, fraction=round(warning.fraction, 6),
            )  # fmt: skip
            self._tell(session, "budget/warning", notice)
            self._record("budget.warned", session, notice)

    def tell_exceeded(self, session: Session, error: BudgetExceeded) -> None:
        """Once for each session and limit in a minute."""
        facts = error.facts
        key = (str(facts.get("session")), str(facts.get("reason")))
        now = time.monotonic()
        if now - self._told.get(key, -REPEAT_EXCEEDED_S) < REPEAT_EXCEEDED_S:
            return
        self._told.pop(key, None)
        self._told[key] = now
        if len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]
        notice = BudgetNotice(
            session=key[0], reason=key[1], observed=facts["observed"], limit=facts["limit"]
        )
        self._tell(session, "budget/exceeded", notice)
        self._record("budget.exceeded", session, notice)

    def _tell(self, session: Session, method: str, notice: BudgetNotice) -> None:
        told = set(self._audience.approvers)
        for above in session.upwards():
            told |= above.connections
        self._audience.tell(told, method, notice)

    def _record(self, kind: str, session: Session, notice: BudgetNotice) -> None:
        data = {"reason": notice.reason, "observed": notice.observed, "limit": notice.limit}
        self._admission.recorder.write(kind, data, session=session.id)
