"""A sandbox and the commands in it: the interface between backends and the supervisor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

import msgspec

from sandboxd.policy.plan import Limits
from sandboxd.progress import ReportProgress
from sandboxd.traffic import Traffic
from sandboxd_proto.errors import PathDenied
from sandboxd_proto.manifest import SyscallPolicy
from sandboxd_proto.messages.execute import LeftProcesses, Tier

# "timeout": held by the reaper inside, when the daemon did not end the command in time.
LimitName = Literal["memory", "cpu", "processes", "timeout"]
# From the SIGTERM at the timeout to the SIGKILL.
TERM_GRACE_S = 2.0
Wanted = Literal[
    "look", "read", "exec", "enter", "write", "create", "remove", "change", "probe", "rename"
]


class PathChanged(PathDenied):
    """Others changed a path of the plan. Before a command was started the request can be
    repeated."""


class PtyRequest(msgspec.Struct, frozen=True):
    """`stderr_apart`: the command's stderr is a pipe beside the terminal."""

    rows: int
    cols: int
    echo: bool = True
    stderr_apart: bool = False


class Command(msgspec.Struct, frozen=True):
    """One command for a sandbox that is already up. `traffic`: where its network use is noted.

    `files`: the file server of the sandbox runs in place of a program. `progress`: is told of long
    work around the command. `attempted`: is told once of each host that the command tried to reach.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str
    limits: Limits
    syscall_policy: SyscallPolicy
    pty: PtyRequest | None = None
    keep_background: bool = False
    explain: bool = False
    traffic: Traffic | None = None
    timeout_s: float | None = None
    files: bool = False
    progress: ReportProgress | None = None
    attempted: Callable[[Attempt], None] | None = None


class Stdio(msgspec.Struct, frozen=True):
    """The child's ends. The caller closes them after `spawn` returned or raised."""

    stdin: int
    stdout: int
    stderr: int


class TreeUsage(msgspec.Struct, frozen=True):
    cpu_ms: float
    max_rss_bytes: int


class ConnectAttempt(msgspec.Struct, frozen=True):
    """A connection that was attempted: the kernel alone decided what became of it."""

    address: str
    port: int


Attempt = ConnectAttempt | str  # a connection, or a name that was looked up


class RefusedAccess(msgspec.Struct, frozen=True):
    """A path that was refused, absolute as the command sees it, and the kernel's answer.

    `errno` 0: it was opened, and is a mount of the sandbox's own (a mask is one). `probe`: the
    command asked whether it may write.
    """

    path: str
    wanted: Wanted
    errno: int


# A blocking datagram socket is also how getaddrinfo asks for a route.
SocketKind = Literal["stream", "datagram", "blocking datagram", "unix"]


class Evidence(msgspec.Struct, frozen=True):
    """What the kernel showed while the command ran.

    Where the network was closed: connections that it attempted and names that it asked for. In
    explain mode: what was refused, the system calls that it was killed for, and whether there
    was more than could be kept (`truncated`). `full`: private file systems without the space that
    the command needed. `full_before`: those that were full when it began, and it failed.
    `refused_peers`: socket files that it was not let connect to.
    `refused_sockets`: kinds of sockets that could not be made.
    """

    connections: tuple[ConnectAttempt, ...] = ()
    lookups: tuple[str, ...] = ()
    explained: bool = False
    refused: tuple[RefusedAccess, ...] = ()
    killed_calls: tuple[str, ...] = ()
    truncated: bool = False
    full: tuple[str, ...] = ()
    full_before: tuple[str, ...] = ()
    refused_peers: tuple[str, ...] = ()
    refused_sockets: tuple[SocketKind, ...] = ()

    def __bool__(self) -> bool:
        seen = self.connections or self.lookups or self.refused_peers or self.refused_sockets
        return bool(seen or self.explained or self.full or self.full_before)


NO_EVIDENCE = Evidence()


class ExitReport(msgspec.Struct, frozen=True):
    """How a command ended. `lost`: the sandbox was given up under it, and why.

    `protected`: protected paths that it changed, and where the changed version is now. `tiers`: how
    firmly limits were held for this very command, where that differs from what was foreseen.
    `start_failure`: what its exit code says if it printed nothing: the program never ran.
    `whole`: no process of its tree is left, for certain. `left`: what it left was ended.
    """

    exit_code: int | None
    signal: int | None
    usage: TreeUsage
    limit: LimitName | None = None
    lost: str | None = None
    protected: tuple[tuple[str, str | None], ...] = ()
    tiers: tuple[tuple[str, Tier], ...] = ()
    evidence: Evidence = NO_EVIDENCE
    start_failure: str | None = None
    whole: bool = False
    left: LeftProcesses | None = None


class Process(Protocol):
    """A command on its way. Its owner calls `close` exactly once, whatever happened.

    One task at a time waits for it.
    """

    @property
    def pty(self) -> int | None:
        """The terminal's master, owned by this object until `close`."""

    @property
    def filter_loaded(self) -> bool:
        """Whether a seccomp filter is in force: only then is SIGSYS a denial."""

    async def started(self) -> None:
        """Until the exec succeeded.

        ExecFailed if the program cannot be executed, SandboxUnavailable if the sandbox is gone.
        """

    async def wait(self, *, tree: bool = True) -> ExitReport:
        """Until the command has ended, with `tree` everything that it started as well.

        It can be cancelled and called again, and raises what `started` would raise.
        """

    def signal(self, number: int, *, whole_tree: bool = False) -> None:
        """Best effort and never blocking; a process that has ended is not an error.

        PolicyNotSupported for a signal that the backend cannot send.
        """

    def kill(self) -> None:
        """SIGKILL to the whole tree."""

    def close(self) -> None:
        """Let go of it. What is still alive of its tree is killed."""


class BroughtBack(msgspec.Struct, frozen=True):
    """What became of the changes that a command made to copies of its folders.

    `protected`: as in ExitReport. `lost`: its sandbox may still run.
    """

    warnings: tuple[str, ...] = ()
    protected: tuple[tuple[str, str | None], ...] = ()
    lost: str | None = None


@runtime_checkable
class CopyingProcess(Process, Protocol):
    """A command that worked on copies of the granted folders, where a backend `copies` them."""

    async def bring_back(self) -> BroughtBack:
        """After its end, once: its changes are written to the folders of this machine.

        SandboxUnavailable if that cannot be done.
        """


@runtime_checkable
class ExplainsEnd(Protocol):
    """A sandbox that may know why it ended."""

    def last_words(self) -> str | None: ...


class Sandbox(Protocol):
    """A sandbox that is up and waits for commands."""

    @property
    def alive(self) -> bool:
        """Whether it can take a command now."""

    async def spawn(self, command: Command, stdio: Stdio | None) -> Process:
        """Send a command on its way; `Process.started` waits for it. With a pty `stdio` is None,
        or only its stderr is used (`stderr_apart`).

        SandboxUnavailable if the sandbox is gone.
        """

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        """`spawn` for where it takes no waiting; None where it would."""

    def verify(self) -> bool:
        """Whether everything that it was made from is still what it was."""
