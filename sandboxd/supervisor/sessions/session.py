"""One session: its mode, budget and children, and the connections that are attached to it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from sandboxd.policy.plan import Plan
from sandboxd.supervisor.budgets.ledger import Account
from sandboxd_proto.messages.approval import Addition
from sandboxd_proto.messages.session import (
    Mode,
    OnDenial,
    SessionInfo,
    SessionState,
)
from sandboxd_proto.secret import Secret


@dataclass(slots=True, eq=False)
class Session:
    """`implicit`: a connection's own, until it opens or attaches to one. `token_digest` is the
    SHA-256 of the token, which is given out once. `refused` holds subjects of questions that an
    approver refused for the whole session; `family` are the ids of all sessions that were ever
    at or below this one. `owns_name`: it has the token that its name was first opened with, so that
    what the name keeps for its owner (grants) is its own. `widenings` are additions that were
    allowed once, by the digest of the request that they are for."""

    account: Account
    parent: Session | None
    mode: Mode
    id: str = field(default_factory=lambda: f"se-{os.urandom(16).hex()}")
    implicit: bool = False
    name: str | None = None
    title: str | None = None
    plan: bool = False
    preset: str | None = None
    workspace: str | None = None
    on_denial: OnDenial = "report"
    linger_secs: float = 60.0
    state: SessionState = "open"
    token_digest: str = ""
    opened_at: float = field(default_factory=time.time)
    children: list[Session] = field(default_factory=list)
    connections: set[object] = field(default_factory=set)
    executions: set[str] = field(default_factory=set)
    approvals: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    family: set[str] = field(default_factory=set)
    left_at: float | None = None
    tmp: str | None = None
    tmp_plans: dict[int, tuple[Plan, Plan]] = field(default_factory=dict)
    tmp_used: int = 0
    owns_name: bool = True
    widenings: dict[str, tuple[str, Addition]] = field(default_factory=dict)
    _above: tuple[Session, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._above = self.parent.upwards() if self.parent is not None else ()

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def is_open(self) -> bool:
        return self.state != "closed"

    @property
    def is_idle(self) -> bool:
        """Nothing keeps it alive: neither a connection nor an execution, here or below."""
        return not self.connections and not self.executions and not self.children

    def matches(self, token: Secret) -> bool:
        return bool(self.token_digest) and Secret(self.token_digest).matches(token.digest())

    def upwards(self) -> tuple[Session, ...]:
        return (self, *self._above)

    def downwards(self) -> Iterator[Session]:
        """Children first, then the session itself."""
        for child in list(self.children):
            yield from child.downwards()
        yield self

    def is_below(self, other: Session) -> bool:
        """Whether this session is `other` or one below it."""
        return any(session is other for session in self.upwards())

    @property
    def effective_plan(self) -> bool:
        """The flag of any session above holds here too."""
        return self.plan or (bool(self._above) and any(one.plan for one in self._above))

    def info(self, now: float) -> SessionInfo:
        return SessionInfo(
            session=self.id, parent=self.parent.id if self.parent else None, depth=self.depth,
            name=self.name, title=self.title, mode=self.mode, plan=self.plan, state=self.state,
            preset=self.preset, workspace=self.workspace, on_denial=self.on_denial,
            budget=self.account.limits, usage=self.account.usage(now),
            connections=len(self.connections), executions=len(self.executions),
            approvals=len(self.approvals), opened_ms=round(self.opened_at * 1000, 3),
        )  # fmt: skip
