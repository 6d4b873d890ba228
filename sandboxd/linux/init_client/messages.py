"""The messages between the daemon and the sandbox's init, and the numbers in them.

``init/wire.h`` defines the same numbers; a test compares the two. ``codec`` turns messages into
bytes and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, IntFlag


class SetupFlag(IntFlag):
    WATCH_MOUNTS = 1
    HAS_RULESET = 2
    REQUIRE_PID1 = 4
    GUARD = 8
    NOTIFY = 16
    HAS_FILTER = 32
    PREFORK = 64
    HAS_CGROUP = 128
    UNIX_PEERS = 256
    SHARED_NETWORK = 512
    SET_GID = 1024
    NO_INET = 2048
    NO_UNIX = 4096


class ExecFlag(IntFlag):
    PTY = 1
    HAS_FILTER = 2
    KEEP_BACKGROUND = 4
    HAS_CGROUP = 8
    HAS_TERMINAL = 16
    EXPLAIN = 32
    FILTER_AHEAD = 64
    FILES = 128
    NO_ECHO = 256
    HAS_STDERR = 512


_NO_SETUP_FLAGS = SetupFlag(0)


class RefusedKind(IntEnum):
    """What kind of socket was refused; programs make some in passing."""

    STREAM = 1
    DATAGRAM = 2
    BLOCKING_DATAGRAM = 3
    UNIX = 4


class SignalScope(IntEnum):
    MAIN = 0
    TREE = 1


class Wanted(IntEnum):
    """What a command wanted of a path. PROBE: it asked whether it may write."""

    LOOK = 1
    READ = 2
    EXEC = 3
    ENTER = 4
    WRITE = 5
    CREATE = 6
    REMOVE = 7
    CHANGE = 8
    PROBE = 9
    RENAME = 10


class LimitKind(IntEnum):
    MEMORY = 1
    CPU = 2
    PROCESSES = 3
    TIMEOUT = 4


class SetupStage(IntEnum):
    PID1 = 1
    CHECK = 2
    RULE = 3
    LANDLOCK = 4
    PROC = 5
    MOUNTS = 6
    GUARD = 7
    CGROUP = 8
    UNIX_PEERS = 9
    TEMPLATE = 10


class ExecStage(IntEnum):
    FORK = 1
    PTY = 2
    STDIO = 3
    DESCRIPTORS = 4
    CHDIR = 5
    RLIMIT = 6
    KEYRING = 7
    NO_NEW_PRIVS = 8
    SECCOMP = 9
    EXEC = 10
    CGROUP = 11
    TRACE = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """The identity that a path inside must have; another one means a wrong bind."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LandlockRule:
    """A Landlock rule for a mount that exists only inside; skipped if the path is missing."""

    path: str
    access: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rlimit:
    resource: int
    soft: int
    hard: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Descriptors to send with it: the ruleset, if HAS_RULESET; the filter that the next command
    will most likely have, if HAS_FILTER; cgroup.procs of the sandbox's cgroup, if HAS_CGROUP.

    `scratch`: the file systems in memory that are the sandbox's own.
    `sockets`: with UNIX_PEERS, the socket files of the host that commands may connect to.
    `encoded`: kept by the codec, because a template sends one setup to all its clones."""

    flags: SetupFlag = _NO_SETUP_FLAGS
    checks: Sequence[Check] = ()
    rules: Sequence[LandlockRule] = ()
    scratch: Sequence[str] = ()
    sockets: Sequence[Check] = ()
    encoded: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)
    _flagged: dict[SetupFlag, Setup] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def with_flags(self, flags: SetupFlag) -> Setup:
        """With these too; the same object whenever it is asked for."""
        if flags not in self._flagged:
            self._flagged[flags] = replace(self, flags=self.flags | flags)
        return self._flagged[flags]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exec:
    """Descriptors to send with it, in this order: the payload if it is in one, the channel, the
    filter if HAS_FILTER, cgroup.procs of the command's cgroup if HAS_CGROUP, the terminal if
    HAS_TERMINAL (a PTY is otherwise opened inside), then stdin, stdout and stderr unless PTY, and
    stderr alone if HAS_STDERR."""

    argv: Sequence[str]
    env: Sequence[tuple[str, str]] = ()
    cwd: str
    flags: int = 0  # of ExecFlag
    rows: int = 0
    columns: int = 0
    rlimits: Sequence[Rlimit] = ()
    tree_memory_bytes: int = 0
    tree_cpu_us: int = 0
    tree_processes: int = 0
    wall_ms: int = 0  # to the kill, if the daemon has not ended the command by then


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    number: int
    scope: SignalScope = SignalScope.MAIN


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class CloneRequest:
    """To a template, with the control socket of the new init."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnterRequest:
    """To a template, with cgroup.procs of the cgroup that its next clones start in."""


Request = Setup | Exec | Signal | Kill | CloneRequest | EnterRequest


@dataclass(frozen=True, slots=True)
class Ready:
    pid: int


@dataclass(frozen=True, slots=True)
class SetupFailed:
    stage: SetupStage
    errno: int
    detail: str


@dataclass(frozen=True, slots=True)
class IsolationLost:
    """``what`` is the mount point that was lost or appeared."""

    what: str


@dataclass(frozen=True, slots=True)
class ProtocolError:
    reason: str


@dataclass(frozen=True, slots=True)
class StartedMessage:
    """Carries the pty's master as a descriptor if a PTY was asked for. ``pid`` is the init's
    view of it."""

    pid: int


@dataclass(frozen=True, slots=True)
class ExecFailedMessage:
    """The last message of a command that never ran. ``path`` is what the error is about."""

    stage: ExecStage
    errno: int
    path: str


@dataclass(frozen=True, slots=True)
class TreeRusage:
    user_us: int
    system_us: int
    maxrss_bytes: int


@dataclass(frozen=True, slots=True)
class ExitedMessage:
    """How the main process ended: exactly one of ``code`` and ``signal`` is not None."""

    code: int | None
    signal: int | None
    usage: TreeRusage


@dataclass(frozen=True, slots=True)
class Limit:
    kind: LimitKind


@dataclass(frozen=True, slots=True)
class Gone:
    """The last message of a command that ran: no process of its tree is left."""

    usage: TreeRusage


@dataclass(frozen=True, slots=True)
class Notified:
    """A connection that was attempted where the network is closed (NOTIFY in the setup)."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A DNS name that was queried where the network is closed."""

    name: str


@dataclass(frozen=True, slots=True)
class RefusedPeer:
    """A socket file that the command was not let connect to (UNIX_PEERS in the setup)."""

    path: str


@dataclass(frozen=True, slots=True)
class RefusedSocket:
    """A socket that could not be made (NO_INET, NO_UNIX in the setup)."""

    kind: RefusedKind


@dataclass(frozen=True, slots=True)
class RefusedPath:
    """``errno`` 0: nothing failed, but what was opened is a mount of its own (a mask is one)."""

    errno: int
    wanted: Wanted
    path: str


@dataclass(frozen=True, slots=True)
class RefusedPathsMessage:
    """Accesses that failed, in the order in which they were made (EXPLAIN)."""

    refusals: tuple[RefusedPath, ...]


@dataclass(frozen=True, slots=True)
class NoSpace:
    """The command failed, and this private file system is full."""

    path: str


@dataclass(frozen=True, slots=True)
class KilledCall:
    """The system call during which a process died of SIGSYS (EXPLAIN)."""

    number: int


@dataclass(frozen=True, slots=True)
class Cloned:
    """Of a template, in order. Carries the pidfd of the new init if `errno` is 0."""

    errno: int


Control = Ready | SetupFailed | IsolationLost | ProtocolError | Cloned
Channel = (
    StartedMessage
    | ExecFailedMessage
    | ExitedMessage
    | Limit
    | Gone
    | Notified
    | LookedUp
    | RefusedPeer
    | RefusedSocket
    | RefusedPathsMessage
    | KilledCall
    | NoSpace
)
