"""`session/*`: sessions share one supervisor; each has a mode, a budget and children."""

from __future__ import annotations

from typing import Literal

import msgspec

from sandboxd_proto.secret import Secret
from sandboxd_proto.wire import Reported, WireStruct

Mode = Literal["default", "auto_edit", "force"]
OnDenial = Literal["report", "offer", "retry"]
SessionState = Literal["open", "exhausted", "closed"]


class Budget(WireStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session and all sessions below it may use. `max_processes` counts executions at
    once; the manifest's field of that name counts processes of one command."""

    max_wall_time_secs: float | None = None
    max_tool_runtime_secs: float | None = None
    max_processes: int | None = None
    max_agent_depth: int | None = None
    max_tokens_in: int | None = None
    max_tokens_out: int | None = None
    max_cost_usd: float | None = None


class SessionUsage(Reported, frozen=True, kw_only=True):
    wall_time_secs: float = 0.0
    tool_runtime_secs: float = 0.0
    processes: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0


class SessionOpenParams(WireStruct, frozen=True, kw_only=True):
    """`mode` is default, auto_edit, force or plan, or one of their aliases."""

    name: str | None = None
    title: str | None = None
    parent: str | None = None
    mode: str = "default"
    plan: bool | None = None
    preset: str | None = None
    workspace: str | None = None
    budget: Budget | None = None
    on_denial: OnDenial | None = None
    linger_secs: float | None = None
    token: Secret | None = None


class SessionAttachParams(WireStruct, frozen=True, kw_only=True):
    session: str
    token: Secret


class SessionUpdateParams(WireStruct, frozen=True, kw_only=True):
    session: str | None = None
    title: str | None = None
    mode: str | None = None
    plan: bool | None = None
    preset: str | None = None
    workspace: str | None = None
    budget: Budget | None = None
    on_denial: OnDenial | None = None


class SessionRef(WireStruct, frozen=True, kw_only=True):
    """Without `session`: the connection's own."""

    session: str | None = None


class ChargeParams(WireStruct, frozen=True, kw_only=True):
    session: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    request_id: str | None = None


class SessionInfo(Reported, frozen=True, kw_only=True):
    session: str
    parent: str | None
    depth: int
    name: str | None
    title: str | None
    mode: Mode
    plan: bool
    state: SessionState
    preset: str | None
    workspace: str | None
    on_denial: OnDenial
    budget: Budget
    usage: SessionUsage
    connections: int
    executions: int
    approvals: int
    opened_ms: float


class SessionOpened(SessionInfo, frozen=True, kw_only=True):
    """`tmp`: whether the session's commands share a /tmp, or each has a fresh one."""

    token: Secret
    resumed: bool = False
    tmp: Literal["session", "fresh"] = "session"


class SessionClosed(Reported, frozen=True, kw_only=True):
    executions: int
    approvals: int


class SessionList(Reported, frozen=True, kw_only=True):
    sessions: list[SessionInfo] = msgspec.field(default_factory=list)


class Charged(Reported, frozen=True, kw_only=True):
    """`fraction`: of the limit that is nearest; 0 without limits."""

    usage: SessionUsage
    fraction: float
    repeated: bool


class BudgetNotice(Reported, frozen=True, kw_only=True):
    session: str
    reason: str
    observed: float
    limit: float
    fraction: float | msgspec.UnsetType = msgspec.UNSET
