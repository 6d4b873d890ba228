"""`execution/*`: talk to a command while it runs, list them, wait for a detached one."""

from __future__ import annotations

from sandboxd_proto.wire import Reported, WireStruct


class Nothing(Reported, frozen=True, kw_only=True):
    """The answer `{}`."""


class ExecutionRef(WireStruct, frozen=True, kw_only=True):
    execution_id: str


class WriteParams(WireStruct, frozen=True, kw_only=True):
    execution_id: str
    data: str | None = None
    base64: str | None = None


class SignalParams(WireStruct, frozen=True, kw_only=True):
    execution_id: str
    signal: int | str


class ResizeParams(WireStruct, frozen=True, kw_only=True):
    execution_id: str
    rows: int
    cols: int


class NoParams(WireStruct, frozen=True, kw_only=True):
    pass


class ExecutionInfo(Reported, frozen=True, kw_only=True):
    execution_id: str
    argv: list[str]
    backend: str
    started_ms: float
    sandbox: str | None
    detached: bool


class ExecutionList(Reported, frozen=True, kw_only=True):
    executions: list[ExecutionInfo]
