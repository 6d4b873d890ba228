"""What the classifier is told: the setting of a command, its ending, and a view of the host.

The classifier asks the host only through `HostView`, so that recorded runs can be judged on a
machine where they never ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from sandboxd.policy.layout import Layout
from sandboxd.policy.plan import Access, Plan
from sandboxd.sandbox import Connection, RefusedAccess
from sandboxd_proto.messages.execute import Outcome, Tier

LimitHit = Literal["memory", "cpu", "processes", "file_size", "output"]


def _never(_: object) -> bool:
    return False


def _permits(_path: str, _access: Access) -> bool:
    return True


def _same(path: str) -> str:
    return path


@dataclass(frozen=True, slots=True)
class HostView:
    """The host as it is outside every sandbox, for the user that the command runs as.

    `exists` does not follow the last link. `permits`: the host's own permission bits would let
    this user read or write the path (or create it, when it does not exist). `listens`: something
    on the host accepts TCP connections at this port.
    """

    exists: Callable[[str], bool]
    is_dir: Callable[[str], bool] = _never
    permits: Callable[[str, Access], bool] = _permits
    canonical: Callable[[str], str] = _same
    pid_exists: Callable[[int], bool] = _never
    listens: Callable[[int], bool] = _never


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known before the command starts, and does not change while it runs.

    `filter_kills`: the loaded filter ends a process; otherwise it answers errors only, and who
    dies of SIGSYS was sent it. `masks_refuse`: a masked file answers EACCES instead of reading as
    empty. `userns_disabled`: the sandbox forbids nested user namespaces. `host_root`: outside,
    the command would be root.
    """

    plan: Plan
    layout: Layout
    host: HostView
    argv: tuple[str, ...] = ()
    cwd: str | None = None
    filter_loaded: bool = False
    filter_kills: bool = True
    landlock: bool = False
    userns_disabled: bool = True
    pid_namespace: bool = True
    masks_refuse: bool = True
    host_root: bool = False
    pty: bool = False
    platform: str = "linux"

    @property
    def working_directory(self) -> str:
        return self.cwd or self.plan.cwd

    @property
    def network_restricted(self) -> bool:
        return self.plan.sandbox.network.kind != "inherit"


@dataclass(frozen=True, slots=True)
class GateEvent:
    """A connection or a name lookup that the egress gate refused.

    `allow`: the entries of the manifest that would allow it; None: the host itself.
    """

    host: str
    port: int | None
    reason: str
    operation: str = "connect"
    allow: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """How the command ended, as the daemon and the kernel know it.

    `protected`: (path, where it was moved) of protected paths that appeared during the run.
    `syscall`: the call that a filter killed for, where the kernel said so. `notified`, `lookups`:
    connections that were attempted and names that were asked for where the network is closed.
    `explained`: the kernel itself told all that it `refused` and each of the `killed_calls`.
    """

    outcome: Outcome = "exited"
    exit_code: int | None = None
    signal: int | None = None
    limit_hit: LimitHit | None = None
    timed_out: bool = False
    cancelled: bool = False
    setup_failure: str | None = None
    cpu_s: float | None = None
    syscall: str | None = None
    enforcement: Mapping[str, Tier] = field(default_factory=dict)
    gate_events: tuple[GateEvent, ...] = ()
    notified: tuple[Connection, ...] = ()
    lookups: tuple[str, ...] = ()
    explained: bool = False
    refused: tuple[RefusedAccess, ...] = ()
    killed_calls: tuple[str, ...] = ()
    protected: tuple[tuple[str, str | None], ...] = ()

    @property
    def failed(self) -> bool:
        return self.exit_code != 0
