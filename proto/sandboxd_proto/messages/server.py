"""`initialize`, `status`, `manifest/check`: what this daemon is and what it would do."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sandboxd_proto.manifest import Base, Manifest, Network, SyscallPolicy
from sandboxd_proto.messages.approval import Decision, Effect
from sandboxd_proto.messages.execute import Tier
from sandboxd_proto.wire import Reported, WireStruct


class Party(WireStruct, frozen=True, kw_only=True):
    name: str
    version: str = ""


class InitializeParams(WireStruct, frozen=True, kw_only=True):
    client: Party | None = None


class InitializeResult(Reported, frozen=True, kw_only=True):
    """`backend_setting`: the backend that the daemon's settings name, or `auto`. `environment`: the
    daemon's own SANDBOXD_* variables, without keys; those of a client have no effect on it."""

    server: Party
    protocol: int
    backend: str | None
    presets: list[str]
    capabilities: dict[str, int] = msgspec.field(default_factory=dict)
    warnings: list[str] = msgspec.field(default_factory=list)
    backend_setting: str = "auto"
    environment: dict[str, str] = msgspec.field(default_factory=dict)


BackendUse = Literal["automatic", "named", "elsewhere"]


class BackendStatus(Reported, frozen=True, kw_only=True):
    """`use`: tried on this system for requests that name no backend, only for those that name it,
    or `elsewhere`: it is another system's. `remote`: another machine makes its sandboxes."""

    name: str
    available: bool
    reason: str | None
    remedy: str | None
    layers: list[str]
    use: BackendUse = "named"
    remote: bool = False


class SandboxCounts(Reported, frozen=True, kw_only=True):
    warm: int
    persistent: int


class StatusResult(Reported, frozen=True, kw_only=True):
    """`log`: the file that the daemon logs to, or the command that shows its log, if known."""

    version: str
    pid: int
    uptime_ms: float
    backend: str | None
    backends: list[BackendStatus]
    executions: int
    clients: int
    sandboxes: SandboxCounts
    warnings: list[str]
    landlock_abi: int
    cgroup_version: int
    bwrap_available: bool
    sessions: int = 0
    approvals: int = 0
    approvers: int = 0
    backend_setting: str = "auto"
    log: str | None = None


class CheckParams(WireStruct, frozen=True, kw_only=True):
    manifest: Manifest | None = None
    preset: str | None = None
    workspace: str | None = None
    cwd: str | None = None
    backend: str | None = None
    session: str | None = None


class ResolvedManifest(Reported, frozen=True, kw_only=True):
    """The manifest with every default filled in and every path resolved. `run_as`: the user whose
    rights the command has, where a daemon of root gives up root for the workspace's owner."""

    fs_read_allow: list[str]
    fs_write_allow: list[str]
    fs_deny: list[str]
    base: Base
    network: Network
    syscall_policy: SyscallPolicy
    timeout_secs: float | None
    max_memory_bytes: int | None
    max_cpu_secs: float | None
    max_cpus: float | None
    max_processes: int | None
    max_file_bytes: int | None
    max_output_bytes: int | None
    tmp_bytes: int | None = None
    shm_bytes: int | None = None
    env: list[tuple[str, str]]
    image: str | None
    cwd: str
    protected: list[str] = msgspec.field(default_factory=list)
    run_as: str | None = None


class CheckResult(Reported, frozen=True, kw_only=True):
    backend: str
    plan: ResolvedManifest
    enforcement: dict[str, Tier]
    command_line: list[str]
    effect: Effect | None = None
    decision: Decision | None = None
    grant: str | None = None
    warnings: list[str] = msgspec.field(default_factory=list)


OpenRpc = dict[str, Any]
