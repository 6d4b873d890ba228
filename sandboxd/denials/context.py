"""The classifier's input: the setting of a command, its end, and a view of the host.

The classifier asks the host only through `HostView`, so that recorded runs can be judged on a
machine where they never ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from sandboxd.config.config import Ceiling
from sandboxd.policy.mounts.mount_plan import MountPlan
from sandboxd.policy.plan import Access, Plan
from sandboxd.traffic import GateRefusal
from sandboxd.types import ConnectAttempt, RefusedAccess, SocketKind
from sandboxd_proto.messages.execute import Outcome, Tier

LimitHit = Literal["memory", "cpu", "processes", "file_size", "output"]


def _never(_: object) -> bool:
    return False


def _permits(_path: str, _access: Access) -> bool:
    return True


def _no_barrier(_path: str, _access: Access, _top: str) -> str | None:
    return None


def _nobody_known(_: str) -> str:
    return "another user"


def _you() -> str:
    return ""


def _same(path: str) -> str:
    return path


class HostFile(msgspec.Struct, frozen=True):
    """One entry of a folder of the host. Of the command's user is `own`; what only its owner can
    read is `private`; a file that can be started is a `program`; one with several names is
    `linked`, and these have the same `inode`."""

    name: str
    kind: Literal["file", "folder", "link", "other"] = "file"
    own: bool = True
    private: bool = False
    program: bool = False
    linked: bool = False
    inode: tuple[int, int] = (0, 0)


def _no_file(_: str) -> HostFile | None:
    return None


def _no_entries(_path: str, _most: int) -> list[HostFile] | None:
    return []


class HostView(msgspec.Struct, frozen=True):
    """The host as it is outside every sandbox, for the user that the command runs as.

    `exists` does not follow the last link. `permits`: the host's own permission bits would let
    this user read or write the path (or create it, when it does not exist). `listens`: something
    on the host accepts TCP connections at this port. `listens_at`: at this socket file.
    `barrier`: whose permission bits keep this user out, without capabilities: the path's own or
    those of a folder above it, from the one given last on. `owner`: the name of a path's owner;
    `user`: this one's. `foreign_home`: the path is in the home folder of another user. `home`: the
    folder of this one. `file`: what is there, links
    followed; None if it cannot be told. `entries`: what a folder holds; None if it cannot be read
    or holds more than that.
    """

    exists: Callable[[str], bool]
    is_dir: Callable[[str], bool] = _never
    permits: Callable[[str, Access], bool] = _permits
    canonical: Callable[[str], str] = _same
    pid_exists: Callable[[int], bool] = _never
    listens: Callable[[int], bool] = _never
    listens_at: Callable[[str], bool] = _never
    barrier: Callable[[str, Access, str], str | None] = _no_barrier
    owner: Callable[[str], str] = _nobody_known
    user: Callable[[], str] = _you
    foreign_home: Callable[[str], bool] = _never
    home: str = ""
    file: Callable[[str], HostFile | None] = _no_file
    entries: Callable[[str, int], list[HostFile] | None] = _no_entries


class Setting(msgspec.Struct, frozen=True):
    """What is known before the command starts, and does not change while it runs.

    `filter_kills`: the loaded filter kills a process; otherwise it only answers errors, and a
    process that dies of SIGSYS was sent it. `masks_refuse`: a masked file answers EACCES
    instead of reading as empty.
    `host_root`: outside, the command would be root. `withheld`: paths that no manifest can
    show, because the config or the daemon hides them. `ceiling`: what no request may exceed.
    `network_namespace`: a closed network is an empty one; otherwise no socket can be made, and
    the kernel reports no attempt. `mounts`: paths are closed by mounts, and not by Landlock alone.
    `own_code`: the daemon's, which no request can make writable. `plan_flags`: where plan mode is
    set that holds for the command's session.
    """

    plan: Plan
    layout: MountPlan
    host: HostView
    argv: tuple[str, ...] = ()
    cwd: str | None = None
    filter_loaded: bool = False
    filter_kills: bool = True
    landlock: bool = False
    masks_refuse: bool = True
    host_root: bool = False
    pty: bool = False
    platform: str = "linux"
    withheld: tuple[str, ...] = ()
    ceiling: Ceiling | None = None
    network_namespace: bool = True
    mounts: bool = True
    own_code: tuple[str, ...] = ()
    plan_flags: tuple[str, ...] = ()

    @property
    def working_directory(self) -> str:
        return self.cwd or self.plan.cwd

    @property
    def network_restricted(self) -> bool:
        return self.plan.sandbox.network.kind != "inherit"


class RunEvidence(msgspec.Struct, frozen=True):
    """How the command ended, as the daemon and the kernel know it.

    `protected`: (path, where it was moved) of protected paths that appeared during the run.
    `syscall`: the call that a filter killed for, where the kernel said so. `notified`, `lookups`:
    connections that were attempted and names that were asked for where the network is closed.
    `attempts_told`: there would be some of these had the command tried to reach anything.
    `explained`: the kernel itself told all that it `refused` and each of the `killed_calls`.
    `full`, `full_before`: as in the evidence of `sandboxd.types`. `refused_peers`:
    socket files that the init did not connect the command to. `refused_sockets`: kinds of sockets
    that could not be made, where there is no network namespace. `start_failure`: why the
    program ended before its first instruction.
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
    enforcement: Mapping[str, Tier] = msgspec.field(default_factory=dict)
    gate_events: tuple[GateRefusal, ...] = ()
    notified: tuple[ConnectAttempt, ...] = ()
    lookups: tuple[str, ...] = ()
    attempts_told: bool = False
    explained: bool = False
    refused: tuple[RefusedAccess, ...] = ()
    killed_calls: tuple[str, ...] = ()
    protected: tuple[tuple[str, str | None], ...] = ()
    full: tuple[str, ...] = ()
    full_before: tuple[str, ...] = ()
    refused_peers: tuple[str, ...] = ()
    refused_sockets: tuple[SocketKind, ...] = ()
    start_failure: str | None = None

    @property
    def failed(self) -> bool:
        return self.exit_code != 0

    @property
    def refused_inet(self) -> frozenset[SocketKind]:
        """Kinds of Internet sockets that tell of an attempt. One that getaddrinfo may have made
        tells of none if the command succeeded."""
        if self.failed:
            return frozenset(self.refused_sockets) - {"unix"}
        return frozenset(self.refused_sockets) & {"stream", "datagram"}

    @property
    def failed_by_itself(self) -> bool:
        """Whether it ended with its own error, and was not killed."""
        ended = self.timed_out or self.cancelled or self.limit_hit is not None
        return self.failed and not ended and self.outcome in {"exited", "signaled"}
