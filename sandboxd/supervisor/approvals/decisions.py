"""What a person's answer to an approval leads to: a grant, a remembered refusal or a raised budget.

`Approvals.decide` calls `grant_for` before the decision is durable, and `carry_out` after it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping

import msgspec

from sandboxd.config.config import ApprovalsConfig
from sandboxd.supervisor.approvals.approval import Approval
from sandboxd.supervisor.approvals.grants import ApprovedGrant, GrantKind, Grants, utc_date
from sandboxd.supervisor.budgets.ledger import check_budget
from sandboxd.supervisor.recorder import Recorder
from sandboxd.supervisor.sessions.registry import Sessions
from sandboxd.supervisor.sessions.session import Session
from sandboxd_proto.messages.approval import ApprovalKind, Choice, Reach

log = logging.getLogger(__name__)
DAY_S = 86400
GRANT_KINDS: dict[ApprovalKind, GrantKind] = {
    "execute": "run", "sandbox": "run", "widen": "widen", "egress": "egress",
}  # fmt: skip


class Decisions:
    def __init__(
        self, config: ApprovalsConfig, sessions: Sessions, grants: Grants, recorder: Recorder
    ) -> None:
        self._config = config
        self._sessions = sessions
        self._grants = grants
        self._recorder = recorder
        self.on_budget_raised: Callable[[Session], None] = lambda session: None

    def grant_for(self, approval: Approval, choice: Choice) -> ApprovedGrant | None:
        """The grant that a choice makes if it lasts."""
        session = self._sessions.any(approval.question.session)
        if not choice.allows or choice.scope == "once":
            return None
        grant = self._grant_of(approval, choice, session)
        if grant is not None:
            self._recorder.write(
                "grant.added",
                {"grant": grant.id, "scope": grant.scope, "kind": grant.kind, "add": grant.add,
                 "match": grant.match, "workspace": grant.workspace, "expires": grant.expires},
                session=session.id, must=True,
            )  # fmt: skip
        return grant

    async def carry_out(
        self, approval: Approval, choice: Choice, grant: ApprovedGrant | None
    ) -> str | None:
        """Give the grant, remember the refusal, or raise the budget.

        Returns the grant's id, or None if there is none or it could not be stored."""
        session = self._sessions.get(approval.question.session)
        if session is None:  # the session was closed while the decision was written
            return None
        kept = await self._keep(session, approval, choice, grant)
        self._sessions.remember(session)
        await self._sessions.store.written()
        return kept

    async def _keep(
        self, session: Session, approval: Approval, choice: Choice, grant: ApprovedGrant | None
    ) -> str | None:
        question = approval.question
        # Requests that wait for these go on at once; a later request asks again.
        approval.used_once = question.kind in ("widen", "egress", "budget")
        if choice.choice == "deny_session":
            session.refused.add(question.subject)
            return None
        if not choice.allows:
            return None
        if question.kind == "budget" and question.add is not None:
            self._raise_budget(session, question.add["budget"])
        if choice.scope == "once":
            if question.kind == "widen" and approval.run_digest is not None and choice.add:
                session.widenings[approval.run_digest] = (approval.id, choice.add)
            return None
        if grant is None:
            return None
        try:
            await self._grants.add(grant)
        except (OSError, ValueError) as error:
            log.error("a grant cannot be stored in %s: %s", self._grants.path, error)
            self._recorder.write("grant.removed", {"grant": grant.id}, session=session.id)
            return None
        return grant.id

    def _raise_budget(self, session: Session, limits: Mapping[str, float]) -> None:
        """Raise a budget, as an approver decided. A session that had used up its time goes on."""
        session.account.limits = check_budget(
            msgspec.structs.replace(session.account.limits, **limits)
        )
        self.on_budget_raised(session)

    def _grant_of(
        self, approval: Approval, choice: Choice, session: Session
    ) -> ApprovedGrant | None:
        question = approval.question
        always = choice.scope == "always"
        workspace = approval.workspace if always else None
        if always and workspace is None:
            return None
        expires = utc_date(time.time() + self._config.always_days * DAY_S)
        kind = GRANT_KINDS.get(question.kind)
        if kind is None:
            return None
        return ApprovedGrant(
            kind=kind,
            match=question.plan if kind == "run" else None,
            add=choice.add,
            session=None if always else session.id,
            workspace=workspace,
            expires=expires if always else None,
            reach=_told(question.reach) if kind == "run" else None,
        )


def _told(reach: Reach | None) -> Reach | None:
    """A name on disk need not be UTF-8; the file of grants must be."""
    if reach is None:
        return None

    def text(paths: list[str]) -> list[str]:
        return [os.fsencode(path).decode("utf-8", "replace") for path in paths]

    return msgspec.structs.replace(reach, write=text(reach.write), read=text(reach.read))
