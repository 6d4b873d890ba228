"""`execute`: run one command in a sandbox."""

from __future__ import annotations

from typing import Literal

import msgspec

from sandboxd_proto.denial import Denial
from sandboxd_proto.manifest import Manifest
from sandboxd_proto.messages.explanation import Explanation
from sandboxd_proto.wire import Reported, WireStruct

Encoding = Literal["utf-8", "base64"]
StreamName = Literal["stdout", "stderr"]
Tier = Literal["enforced", "best_effort", "none"]
Outcome = Literal[
    "exited", "signaled", "timeout", "cancelled", "memory", "cpu", "processes", "file_size",
    "output_limit", "isolation_lost",
]  # fmt: skip


class Base64Data(WireStruct, frozen=True, kw_only=True):
    base64: str


class PtySize(WireStruct, frozen=True, kw_only=True):
    rows: int = 24
    cols: int = 80


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
    capture: bool | None = None
    pty: PtySize | None = None
    sandbox: str | None = None
    session: str | None = None
    backend: str | None = None
    detach: bool = False
    explain: bool = False
    fds: PassedDescriptors | None = None
    execution_id: str | None = None


class Captured(Reported, frozen=True, kw_only=True):
    """`bytes` counts all that was printed; `data` is empty without capture."""

    data: str = ""
    encoding: Encoding = "utf-8"
    bytes: int = 0
    truncated: bool = False


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


class ExecuteResult(Reported, frozen=True, kw_only=True):
    """`network_usage` is filled where the network goes through the gate (allow_hosts),
    `explanation` with `explain`."""

    execution_id: str
    outcome: Outcome
    exit_code: int | None
    signal: int | None
    duration_ms: float
    usage: Usage
    stdout: Captured
    stderr: Captured
    denials: list[Denial]
    backend: str
    enforcement: dict[str, Tier]
    network_usage: list[HostUsage] = msgspec.field(default_factory=list)
    explanation: Explanation | None = None


class Detached(Reported, frozen=True, kw_only=True):
    execution_id: str
