"""`sandbox/*`: sandboxes that outlive one command."""

from __future__ import annotations

from sandboxd_proto.manifest import Manifest
from sandboxd_proto.wire import Reported, WireStruct


class SandboxCreateParams(WireStruct, frozen=True, kw_only=True):
    manifest: Manifest | None = None
    preset: str | None = None
    workspace: str | None = None
    backend: str | None = None
    session: str | None = None
    idle_secs: float | None = None


class SandboxRef(WireStruct, frozen=True, kw_only=True):
    sandbox: str


class SandboxCreated(Reported, frozen=True, kw_only=True):
    sandbox: str


class SandboxInfo(Reported, frozen=True, kw_only=True):
    sandbox: str
    backend: str
    created_ms: float
    executions: int


class SandboxList(Reported, frozen=True, kw_only=True):
    sandboxes: list[SandboxInfo]
