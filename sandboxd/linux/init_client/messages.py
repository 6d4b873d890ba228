"""The messages between the daemon and the sandbox's init, and the numbers in them.

``init/wire.h`` defines the same numbers; a test compares the two. ``codec`` turns messages into
bytes and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, IntFlag

import msgspec


class SetupFlag(IntFlag):
    WATCH_MOUNTS = 1
    HAS_RULESET = 2
    REQUIRE_PID1 = 4
    GUARD = 8
    NOTIFY = 16
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


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The identity that a path inside must have; another one means a wrong bind."""

    path: str
    device: int
    inode: int


class LandlockRule(msgspec.Struct, frozen=True, kw_only=True):
    """A Landlock rule for a mount that exists only inside; skipped if the path is missing."""

    path: str
    access: int


class Rlimit(msgspec.Struct, frozen=True, kw_only=True):
    resource: int
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """``message`` goes over the socket; ``payload``, if not None, in a memfd that is the first
    descriptor."""

    message: bytes
    payload: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Descriptors to send with it: the ruleset, if HAS_RULESET; cgroup.procs of the sandbox's
    cgroup, if HAS_CGROUP.

    `scratch`: the file systems in memory that are the sandbox's own.
    `sockets`: with UNIX_PEERS, the socket files of the host that commands may connect to.
    `encoded`: kept by the codec, because a template sends one setup to all its clones."""

    flags: SetupFlag = _NO_SETUP_FLAGS
    checks: Sequence[Check] = ()
    rules: Sequence[LandlockRule] = ()
    scratch: Sequence[str] = ()
    sockets: Sequence[Check] = ()
    encoded: list[Encoded] = field(default_factory=list, init=False, repr=False, compare=False)
    _flagged: dict[SetupFlag, Setup] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def with_flags(self, flags: SetupFlag) -> Setup:
        """With these too; the same object whenever it is asked for."""
        if flags not in self._flagged:
            self._flagged[flags] = replace(self, flags=self.flags | flags)
        return self._flagged[flags]


class Exec(msgspec.Struct, frozen=True, kw_only=True):
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


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    scope: SignalScope = SignalScope.MAIN


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    pass


class CloneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """To a template, with the control socket of the new init."""


class EnterRequest(msgspec.Struct, frozen=True, kw_only=True):
    """To a template, with cgroup.procs of the cgroup that its next clones start in."""


Request = Setup | Exec | Signal | Kill | CloneRequest | EnterRequest


class Ready(msgspec.Struct, frozen=True):
    pid: int


class SetupFailed(msgspec.Struct, frozen=True):
    stage: SetupStage
    errno: int
    detail: str


class IsolationLost(msgspec.Struct, frozen=True):
    """``what`` is the mount point that was lost or appeared."""

    what: str

    @property
    def reason(self) -> str:
        return f"{self.what} was replaced, or something was mounted there, while the sandbox was up"


class ProtocolError(msgspec.Struct, frozen=True):
    reason: str


class StartedMessage(msgspec.Struct, frozen=True):
    """Carries the pty's master as a descriptor if a PTY was asked for. ``pid`` is the init's
    view of it."""

    pid: int


class ExecFailedMessage(msgspec.Struct, frozen=True):
    """The last message of a command that never ran. ``path`` is what the error is about."""

    stage: ExecStage
    errno: int
    path: str


class TreeRusage(msgspec.Struct, frozen=True):
    user_us: int
    system_us: int
    maxrss_bytes: int


class ExitedMessage(msgspec.Struct, frozen=True):
    """How the main process ended: exactly one of ``code`` and ``signal`` is not None."""

    code: int | None
    signal: int | None
    usage: TreeRusage


class Limit(msgspec.Struct, frozen=True):
    kind: LimitKind


class Gone(msgspec.Struct, frozen=True):
    """The last message of a command that ran: no process of its tree is left."""

    usage: TreeRusage


class Notified(msgspec.Struct, frozen=True):
    """A connection that was attempted where the network is closed (NOTIFY in the setup)."""

    address: str
    port: int


class LookedUp(msgspec.Struct, frozen=True):
    """A DNS name that was queried where the network is closed."""

    name: str


class RefusedPeer(msgspec.Struct, frozen=True):
    """A socket file that the command was not let connect to (UNIX_PEERS in the setup)."""

    path: str


class RefusedSocket(msgspec.Struct, frozen=True):
    """A socket that could not be made (NO_INET, NO_UNIX in the setup)."""

    kind: RefusedKind


class RefusedPath(msgspec.Struct, frozen=True):
    """``errno`` 0: nothing failed, but what was opened is a mount of its own (a mask is one)."""

    errno: int
    wanted: Wanted
    path: str


class RefusedPathsMessage(msgspec.Struct, frozen=True):
    """Accesses that failed, in the order in which they were made (EXPLAIN)."""

    refusals: tuple[RefusedPath, ...]


class NoSpace(msgspec.Struct, frozen=True):
    """This private file system is full at the end of the command, or lacked the space that it asked
    for. ``before``: the command failed, and the file system was full when it began."""

    path: str
    before: bool = False


MOST_LEFT_NAMES = 4


class LeftMessage(msgspec.Struct, frozen=True):
    """Processes that were alive some milliseconds after the main process, and were then killed.
    ``names``: the different ones among them, which commands choose."""

    count: int
    names: tuple[str, ...]


class KilledCall(msgspec.Struct, frozen=True):
    """The system call during which a process died of SIGSYS (EXPLAIN)."""

    number: int


class Cloned(msgspec.Struct, frozen=True):
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
    | LeftMessage
)
