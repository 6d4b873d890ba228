"""Ask an approver about a connection to a host that the manifest does not name: one approval for
each session, host and port, while the connections to it wait."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from sandboxd.config.config import Config
from sandboxd.supervisor.approvals.admission import Admission, Waiter
from sandboxd.supervisor.approvals.approval import Approval
from sandboxd.supervisor.approvals.questions import egress_question
from sandboxd.supervisor.request import AskEgress, ExecuteRequest
from sandboxd.traffic import Traffic
from sandboxd_proto.errors import ApprovalPending, SandboxdError
from sandboxd_proto.messages.approval import Requester
from sandboxd_proto.messages.session import Mode

ASKING: tuple[Mode, ...] = ("default", "auto_edit")
TellPending = Callable[[str, object, Approval], None]


class EgressQuestions:
    def __init__(self, config: Config, admission: Admission, tell_pending: TellPending) -> None:
        self._config = config
        self._admission = admission
        self._tell_pending = tell_pending

    def asker(self, request: ExecuteRequest) -> AskEgress | None:
        """The function that asks for this request; None where unknown hosts are refused at once."""
        session, admission = request.session, self._admission
        if session is None or request.plan.sandbox.network.kind != "allow_hosts":
            return None
        if admission.mode_of(session) not in ASKING or admission.is_planning(session):
            return None
        workspace = request.plan.grants_workspace
        client, owner = request.client, request.owner

        async def ask(execution_id: str, traffic: Traffic, host: str, port: int) -> bool:
            key = (host, port)
            if key in traffic.allowed:
                return True
            if not session.is_open or admission.is_planning(session):
                return False
            entry = host_entry(host, port)
            if admission.grants.allows_host(session, workspace, entry):
                return True
            allowed = await self._ask(
                (execution_id, client, owner), session.id, (host, port), workspace
            )
            if allowed:
                traffic.allowed.add(key)
            return allowed

        return ask

    async def _ask(
        self, who: tuple[str, Requester, object], session_id: str, target: tuple[str, int],
        workspace: str | None,
    ) -> bool:  # fmt: skip
        execution_id, client, owner = who
        session = self._admission.sessions.get(session_id)
        if session is None:
            return False
        question = egress_question(session, client, execution_id, *target, workspace)
        try:
            self._admission.check_refused(session, question.subject)
            approval = self._admission.approvals.ask(question, held=True)
            approval.workspace = workspace
            waiter = Waiter(
                connection=owner, cancelled=anyio.Event(),
                pending=lambda waiting: self._tell_pending(execution_id, owner, waiting),
            )  # fmt: skip
            await self._admission.wait(approval, self._config.egress.ask_secs, waiter)
        except ApprovalPending:
            if approval.waiting <= 0:
                self._admission.approvals.end(approval, "timeout")
            return False
        except SandboxdError:
            return False
        return approval.state == "allowed"


def host_entry(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
