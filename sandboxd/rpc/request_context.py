"""What a handler knows about the call that it serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from sandboxd.policy.plan import Plan
from sandboxd.policy.plan_cache import Key, MadePlan, key_of
from sandboxd.policy.request import PolicyRequest
from sandboxd.supervisor.sessions.session import Session
from sandboxd_proto.errors import InvalidParams
from sandboxd_proto.messages.approval import Requester

if TYPE_CHECKING:
    from sandboxd.rpc.connection import Connection
    from sandboxd.rpc.service import Service
    from sandboxd.supervisor.execution.execution import Execution


class RequestContext(msgspec.Struct, frozen=True):
    """`offset`: where its frame began, which decides which descriptors belong to it.

    `prepared`: plans that a thread has made for it.
    """

    service: Service
    connection: Connection
    offset: int
    request_id: Any = None
    prepared: dict[Key, MadePlan | Exception] = msgspec.field(default_factory=dict)
    _after_answer: list[Callable[[], object]] = msgspec.field(default_factory=list)

    @property
    def is_approver(self) -> bool:
        return self.connection.role == "approver"

    @property
    def requester(self) -> Requester:
        return self.connection.requester

    def session(self, session_id: str | None = None) -> Session:
        """The connection's own session, or the one of this id at or below it."""
        sessions = self.service.admission.sessions
        return sessions.find(sessions.of_connection(self.connection), session_id)

    @property
    def reader(self) -> Session | None:
        """The session whose executions this call may use; None for an approver, who may use all."""
        return None if self.is_approver else self.session()

    def any_session(self, session_id: str | None) -> Session:
        """An approver may name every session; it has none of its own."""
        if not self.is_approver:
            return self.session(session_id)
        if session_id is None:
            raise InvalidParams("an approver has no session: name one", field="session")
        return self.service.admission.sessions.any(session_id)

    def plan_for(self, policy: PolicyRequest) -> Plan:
        """On the event loop: after `wait_for_plan` of plan_preparation.py."""
        made = self.prepared.get(key_of(policy)) if self.prepared else None
        plans = self.service.plans
        return plans.plan_for(policy) if made is None else plans.keep(policy, made)

    def after_answer(self, work: Callable[[], object]) -> None:
        """Do `work` once the answer to this call was sent."""
        self._after_answer.append(work)

    def answered(self) -> None:
        for work in self._after_answer:
            work()

    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that came with this request; the caller closes them."""
        return self.connection.descriptors.take(self.offset)

    def cancelled(self) -> anyio.Event:
        return self.connection.open_requests.cancelled(self.request_id)

    def runs(self, execution: Execution) -> None:
        """From here on the request can be cancelled by its id."""
        self.connection.open_requests.runs(self.request_id, execution)
