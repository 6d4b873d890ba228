"""`execution/*`: control a running command, list executions, wait for a detached one."""

from __future__ import annotations

from typing import Literal

import msgspec

from sandboxd_proto.messages.execute import ExecuteResult, Outcome
from sandboxd_proto.wire import Reported, WireStruct

State = Literal["pending", "running", "ended"]


class Nothing(Reported, frozen=True, kw_only=True):
    """The answer `{}`."""


class ExecutionRef(WireStruct, frozen=True, kw_only=True):
    execution_id: str


class WaitParams(WireStruct, frozen=True, kw_only=True):
    """`timeout_secs`: after it the answer is the state instead of a result."""

    execution_id: str
    timeout_secs: float | None = None


class StreamPositions(WireStruct, frozen=True, kw_only=True):
    """The `seq` of the last piece of each stream that is known already."""

    stdout: int = -1
    stderr: int = -1


class AttachParams(WireStruct, frozen=True, kw_only=True):
    execution_id: str
    after: StreamPositions | None = None
    stdin: bool = False


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


class ExecutionStatus(Reported, frozen=True, kw_only=True):
    """`pty`, `stdin_open`: how it can be attached to. `job_control`: the stop key of its terminal
    (Ctrl-Z) is for jobs of its own: it is a shell."""

    state: State
    result: ExecuteResult | None = None
    pty: bool = False
    stdin_open: bool = False
    job_control: bool = False


class Attached(Reported, frozen=True, kw_only=True):
    """`gap`: older output than is kept was asked for. `next_seq`: where each stream stands now."""

    state: State
    gap: bool = False
    pty: bool = False
    stdin_open: bool = False
    next_seq: dict[str, int] = msgspec.field(default_factory=dict)


class ExecutionListParams(WireStruct, frozen=True, kw_only=True):
    """`ended`: also detached executions that have ended, as long as their results are kept."""

    ended: bool = False


class ExecutionInfo(Reported, frozen=True, kw_only=True):
    """`outcome`, `exit_code` and `signal` of one that has ended; none: it could not be started.
    `watched`: folders in which protected files that appear are moved aside while it runs."""

    execution_id: str
    argv: list[str]
    backend: str
    started_ms: float
    sandbox: str | None
    detached: bool
    state: State = "running"
    outcome: Outcome | None = None
    exit_code: int | None = None
    signal: int | None = None
    watched: list[str] = msgspec.field(default_factory=list)


class ExecutionList(Reported, frozen=True, kw_only=True):
    executions: list[ExecutionInfo]
