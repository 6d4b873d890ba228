"""`execute`: run one command in a sandbox."""

from __future__ import annotations

import builtins
from binascii import a2b_base64
from typing import Any, Literal

import msgspec

from sandboxd_proto.denial import Denial
from sandboxd_proto.manifest import Manifest
from sandboxd_proto.messages.explanation import Explanation
from sandboxd_proto.messages.session import BudgetNotice, OnDenial
from sandboxd_proto.wire import Reported, WireStruct

Encoding = Literal["utf-8", "base64"]
StreamName = Literal["stdout", "stderr"]
Tier = Literal["enforced", "best_effort", "none"]
Outcome = Literal[
    "exited", "signaled", "timeout", "cancelled", "memory", "cpu", "processes", "file_size",
    "output_limit", "isolation_lost", "budget",
]  # fmt: skip


class Base64Data(WireStruct, frozen=True, kw_only=True):
    base64: str


class PtySize(WireStruct, frozen=True, kw_only=True):
    """`echo`: whether the terminal shows what is written to it. `stderr`: "pipe" gives the command
    a stderr of its own beside the terminal."""

    rows: int = 24
    cols: int = 80
    echo: bool = True
    stderr: Literal["terminal", "pipe"] = "terminal"


class CaptureParams(WireStruct, frozen=True, kw_only=True):
    """How much of each stream is put into the result, and which end of it."""

    bytes: int
    keep: Literal["head", "tail", "both"] = "head"


class PassedDescriptors(WireStruct, frozen=True, kw_only=True):
    """Indexes into the descriptors that came (SCM_RIGHTS) with the frame's first byte."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None


class ExecuteParams(WireStruct, frozen=True, kw_only=True):
    argv: list[str]
    cwd: str | None = None
    preset: str | None = None
    workspace: str | None = None
    manifest: Manifest | None = None
    stdin: str | Base64Data | None = None
    stdin_open: bool = False
    stream: bool = False
    capture: bool | CaptureParams | None = None
    stderr: Literal["stdout"] | None = None
    pty: PtySize | None = None
    sandbox: str | None = None
    session: str | None = None
    backend: str | None = None
    detach: bool = False
    explain: bool = False
    fds: PassedDescriptors | None = None
    execution_id: str | None = None
    on_denial: OnDenial | None = None
    approval_wait_secs: float | None = None


class Captured(Reported, frozen=True, kw_only=True):
    """`bytes` counts all that was printed; `data` is empty without capture. `gap_at`: where in
    `data` (in characters, or bytes of base64) a middle part is missing, with `keep: "both"`.
    What is not UTF-8 is base64 in `data`: use `raw` or `text`."""

    data: str = ""
    encoding: Encoding = "utf-8"
    bytes: int = 0
    truncated: bool = False
    gap_at: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def raw(self) -> builtins.bytes:
        """What the command wrote, exactly."""
        return a2b_base64(self.data) if self.encoding == "base64" else self.data.encode()

    @property
    def text(self) -> str:
        """The same as text; bytes that are not UTF-8 show as the replacement character."""
        return self.raw.decode(errors="replace")


class Usage(Reported, frozen=True, kw_only=True):
    cpu_ms: float
    max_rss_bytes: int


class HostUsage(Reported, frozen=True, kw_only=True):
    """What an execution did with one host at one port; bytes as the command sees them."""

    host: str
    port: int
    connections: int
    refused: int
    sent_bytes: int
    received_bytes: int


class Attempt(Reported, frozen=True, kw_only=True):
    """An earlier run of the same command, before its plan was widened."""

    outcome: Outcome
    exit_code: int | None
    duration_ms: float
    denials: list[Denial]


class Widening(Reported, frozen=True, kw_only=True):
    """The approval that would allow what was denied, and how it was resolved."""

    approval: str
    add: dict[str, Any]
    state: str = "pending"
    choice: str | None = None
    message: str | None = None


class LeftProcesses(Reported, frozen=True, kw_only=True):
    """Processes that the command left running when it ended by itself, and that were ended with its
    sandbox. `names`: up to four different ones, as the processes call themselves."""

    count: int
    names: list[str] = msgspec.field(default_factory=list)


class ExecuteResult(Reported, frozen=True, kw_only=True):
    """`network_usage` is filled where the network goes through the gate (allow_hosts),
    `explanation` with `explain`. `backend` is null if it was cancelled while it waited for an
    approval. `grants` are those that widened the plan, `approval` is the one that allowed it.
    `budget`: the limit that was used up, where the outcome is `budget`. `left_processes` is
    absent if the command left none, or where they are not known.
    `warnings`: what was not protected, what should be looked at before it is used outside, and
    allowed hosts that could not be reached."""

    execution_id: str
    outcome: Outcome
    exit_code: int | None
    signal: int | None
    duration_ms: float
    usage: Usage
    stdout: Captured
    stderr: Captured
    denials: list[Denial]
    backend: str | None
    enforcement: dict[str, Tier]
    network_usage: list[HostUsage] = msgspec.field(default_factory=list)
    explanation: Explanation | None = None
    warnings: list[str] = msgspec.field(default_factory=list)
    session: str | None = None
    approval: str | None = None
    grants: list[str] = msgspec.field(default_factory=list)
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    widening: Widening | None = None
    budget: BudgetNotice | msgspec.UnsetType = msgspec.UNSET
    left_processes: LeftProcesses | msgspec.UnsetType = msgspec.UNSET


class Detached(Reported, frozen=True, kw_only=True):
    """`approval`: the one that the execution waits for."""

    execution_id: str
    approval: str | msgspec.UnsetType = msgspec.UNSET
