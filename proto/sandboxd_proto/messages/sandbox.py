"""`sandbox/*`: sandboxes that outlive one command."""

from __future__ import annotations

from typing import Literal

import msgspec

from sandboxd_proto.manifest import Manifest
from sandboxd_proto.messages.session import OnDenial
from sandboxd_proto.wire import Reported, WireStruct

SandboxScope = Literal["user", "session", "connection"]


class SandboxCreateParams(WireStruct, frozen=True, kw_only=True):
    """`name`: unique for the user while the sandbox lives. `scope`: with what it ends."""

    manifest: Manifest | None = None
    preset: str | None = None
    workspace: str | None = None
    backend: str | None = None
    session: str | None = None
    idle_secs: float | None = None
    name: str | None = None
    scope: SandboxScope = "user"
    on_denial: OnDenial | None = None
    approval_wait_secs: float | None = None


class SandboxRef(WireStruct, frozen=True, kw_only=True):
    """`sandbox`: its id or name."""

    sandbox: str


class SandboxCreated(Reported, frozen=True, kw_only=True):
    sandbox: str
    name: str | None = None
    backend: str | None = None
    workspace: str | None = None
    approval: str | None = None


class SandboxInfo(Reported, frozen=True, kw_only=True):
    """`watched`: folders in which protected files that appear are moved aside while it exists."""

    sandbox: str
    backend: str
    created_ms: float
    executions: int
    name: str | None = None
    scope: SandboxScope = "user"
    workspace: str | None = None
    session: str | None = None
    watched: list[str] = msgspec.field(default_factory=list)


class Forwarded(Reported, frozen=True, kw_only=True):
    """`port`: the sandbox's own, which `endpoint` leads to."""

    forward: str
    endpoint: str
    port: int = 0


class SandboxDetails(SandboxInfo, frozen=True, kw_only=True):
    """`lost`: its isolation or its init is gone; commands are refused."""

    state: Literal["up", "lost"]
    forwards: list[Forwarded] = msgspec.field(default_factory=list)


class ForwardParams(WireStruct, frozen=True, kw_only=True):
    """`listen`: a Unix socket in the daemon's own folder, or a port of the host's loopback, which
    every user of the machine can connect to."""

    sandbox: str
    port: int
    listen: Literal["unix", "tcp"] = "unix"


class UnforwardParams(WireStruct, frozen=True, kw_only=True):
    sandbox: str
    forward: str


class SandboxList(Reported, frozen=True, kw_only=True):
    sandboxes: list[SandboxInfo]
