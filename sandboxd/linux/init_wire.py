"""The wire between the daemon and the sandbox's init: bytes in, bytes out, no I/O.

It hides the layout of the messages, whose numbers the init states in ``init/wire.h``; a test
compares the two. What the daemon sends is checked so that a mistake of ours raises here and does
not end a sandbox. What the init says is hostile: a command that found a way into the init could
send anything, so decoding is strict and raises InitLied.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import TypeVar

WIRE_VERSION = 1
HEADER_BYTES = 8
MESSAGE_MAX = 65536
PAYLOAD_MAX = 8388608
FDS_MAX = 8
FILTER_MAX = 4096
TEXT_MAX = 4000

RLIM_INFINITY = 2**64 - 1
"""No limit, as a soft or hard value of Rlimit."""

RLIMITS = 16
"""Linux numbers its resource limits from 0 to 15."""

SIGNALS = 64

# Linux's numbers, wherever this is decoded.
_AF_INET, _AF_INET6 = 2, 10
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*", re.ASCII)

_Member = TypeVar("_Member", bound=IntEnum)


class InitLied(ValueError):
    """A message from the init that no honest init sends: the sandbox must be ended."""


class HeaderFlag(IntFlag):
    PAYLOAD_IN_FD = 1


class MessageType(IntEnum):
    SETUP = 1
    EXEC = 2
    SIGNAL = 3
    KILL = 4
    READY = 65
    SETUP_FAILED = 66
    ISOLATION_LOST = 67
    PROTOCOL_ERROR = 68
    STARTED = 80
    EXEC_FAILED = 81
    EXITED = 82
    LIMIT = 83
    GONE = 84
    NOTIFIED = 85
    LOOKED_UP = 86
    REFUSED = 87
    KILLED_CALL = 88


class SetupFlag(IntFlag):
    WATCH_MOUNTS = 1
    HAS_RULESET = 2
    REQUIRE_PID1 = 4
    GUARD = 8
    NOTIFY = 16
    HAS_FILTER = 32
    SPARE = 64


class ExecFlag(IntFlag):
    PTY = 1
    HAS_FILTER = 2
    KEEP_BACKGROUND = 4
    HAS_CGROUP = 8
    HAS_TERMINAL = 16
    EXPLAIN = 32
    FILTER_AHEAD = 64


_NO_SETUP_FLAGS = SetupFlag(0)


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


class SetupStage(IntEnum):
    PID1 = 1
    CHECK = 2
    RULE = 3
    LANDLOCK = 4
    PROC = 5
    MOUNTS = 6
    GUARD = 7


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
    """What must lie at a path inside: otherwise something else was bound there."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
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
    """Descriptors to send along: the ruleset, if HAS_RULESET; the filter that the next command will
    most likely have, if HAS_FILTER."""

    flags: SetupFlag = _NO_SETUP_FLAGS
    checks: Sequence[Check] = ()
    rules: Sequence[Rule] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Exec:
    """Descriptors to send along, in this order: the payload if it is in one, the channel, the
    filter if HAS_FILTER, cgroup.procs of the command's cgroup if HAS_CGROUP, the terminal if
    HAS_TERMINAL (a PTY is otherwise opened inside), then stdin, stdout and stderr unless PTY."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    number: int
    scope: SignalScope = SignalScope.MAIN


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    pass


Request = Setup | Exec | Signal | Kill


@dataclass(frozen=True, slots=True)
class Encoded:
    """What to send: ``message`` on the socket and, if it is not None, ``payload`` in a memfd that
    goes first among the descriptors."""

    message: bytes
    payload: bytes | None = field(default=None, repr=False)


def encode(request: Request) -> Encoded:
    """Raises ValueError for what the init would refuse."""
    match request:
        case Setup():
            return _framed(MessageType.SETUP, _setup(request))
        case Exec():
            return _framed(MessageType.EXEC, _exec(request))
        case Signal():
            return _framed(MessageType.SIGNAL, _signal(request))
        case Kill():
            return _framed(MessageType.KILL, b"")


def _framed(kind: MessageType, payload: bytes) -> Encoded:
    if len(payload) > PAYLOAD_MAX:
        raise ValueError(f"a message to the init of {len(payload)} bytes is too long")
    if HEADER_BYTES + len(payload) <= MESSAGE_MAX:
        return Encoded(struct.pack("<BBHI", kind, 0, 0, len(payload)) + payload)
    header = struct.pack("<BBHI", kind, HeaderFlag.PAYLOAD_IN_FD, 0, len(payload))
    return Encoded(header, payload)


def _string(value: str) -> bytes:
    data = value.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ValueError("a string for the init contains NUL")
    return struct.pack("<I", len(data)) + data


def _array(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return struct.pack("<I", len(encoded)) + b"".join(encoded)


def _unsigned(layout: str, *values: int) -> bytes:
    try:
        return struct.pack("<" + layout, *values)
    except struct.error as error:
        raise ValueError(f"a number for the init is out of range: {values}") from error


def _setup(setup: Setup) -> bytes:
    if setup.rules and not setup.flags & SetupFlag.HAS_RULESET:
        raise ValueError("Landlock rules without a ruleset")
    return b"".join(
        (
            _unsigned("I", setup.flags),
            _array(_unsigned("QQ", c.device, c.inode) + _string(c.path) for c in setup.checks),
            _array(_string(r.path) + _unsigned("Q", r.access) for r in setup.rules),
        )
    )


def _variable(name: str, value: str) -> bytes:
    if not name or "=" in name:
        raise ValueError(f"not the name of an environment variable: {name!r}")
    return _string(f"{name}={value}")


@lru_cache(maxsize=32)
def _environment(env: tuple[tuple[str, str], ...]) -> bytes:
    """Kept: the next command of the same plan has the same."""
    return _array(_variable(name, value) for name, value in env)


def _rlimit(limit: Rlimit) -> bytes:
    if limit.resource not in range(RLIMITS):
        raise ValueError(f"no such resource limit: {limit.resource}")
    return _unsigned("IQQ", limit.resource, limit.soft, limit.hard)


def _exec(request: Exec) -> bytes:
    if not request.argv:
        raise ValueError("an empty argv")
    return b"".join(
        (
            _unsigned("IHH", request.flags, request.rows, request.columns),
            _string(request.cwd),
            _array(_string(argument) for argument in request.argv),
            _environment(tuple(request.env)),
            _array(_rlimit(limit) for limit in request.rlimits),
            _unsigned(
                "QQI", request.tree_memory_bytes, request.tree_cpu_us, request.tree_processes
            ),
        )
    )


def _signal(signal: Signal) -> bytes:
    if signal.number not in range(1, SIGNALS + 1):
        raise ValueError(f"no such signal: {signal.number}")
    return struct.pack("<iI", signal.number, signal.scope)


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
class Started:
    """Carries the pty's master as a descriptor if a PTY was asked for. ``pid`` is the init's
    view of it."""

    pid: int


@dataclass(frozen=True, slots=True)
class ExecFailed:
    """The last message of a command that never ran. ``path`` is what the error is about."""

    stage: ExecStage
    errno: int
    path: str


@dataclass(frozen=True, slots=True)
class Usage:
    user_us: int
    system_us: int
    maxrss_bytes: int


@dataclass(frozen=True, slots=True)
class Exited:
    """How the main process ended: exactly one of ``code`` and ``signal`` is not None."""

    code: int | None
    signal: int | None
    dumped_core: bool
    usage: Usage


@dataclass(frozen=True, slots=True)
class Limit:
    kind: LimitKind


@dataclass(frozen=True, slots=True)
class Gone:
    """The last message of a command that ran: nobody of its tree is left."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Notified:
    """A connection that was attempted where the network is closed (NOTIFY in the setup)."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A name that was asked for where the network is closed."""

    name: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """``errno`` 0: nothing failed, but what was opened is a mount of its own (a mask is one)."""

    errno: int
    wanted: Wanted
    path: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Accesses that failed, in the order in which they were made (EXPLAIN)."""

    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class KilledCall:
    """The system call during which a process died of SIGSYS (EXPLAIN)."""

    number: int


Control = Ready | SetupFailed | IsolationLost | ProtocolError
Channel = Started | ExecFailed | Exited | Limit | Gone | Notified | LookedUp | Refused | KilledCall


def decode_control(data: bytes) -> Control:
    """What the init said on the control socket. Raises InitLied."""
    reader = _Reader(data)
    message: Control
    match reader.kind:
        case MessageType.READY:
            version, pid = reader.u32(), reader.pid()
            if version != WIRE_VERSION:
                raise InitLied(f"the init speaks version {version} of the wire")
            message = Ready(pid)
        case MessageType.SETUP_FAILED:
            stage = reader.member(SetupStage)
            message = SetupFailed(stage, reader.number(0, 4095), reader.text())
        case MessageType.ISOLATION_LOST:
            message = IsolationLost(reader.text())
        case MessageType.PROTOCOL_ERROR:
            message = ProtocolError(reader.text())
        case kind:
            raise InitLied(f"message {kind} on the control socket")
    reader.end()
    return message


def decode_channel(data: bytes) -> Channel:
    """What the keeper of a command said on its channel. Raises InitLied."""
    reader = _Reader(data)
    message: Channel
    match reader.kind:
        case MessageType.STARTED:
            message = Started(reader.pid())
        case MessageType.EXEC_FAILED:
            failed = reader.member(ExecStage)
            message = ExecFailed(failed, reader.number(1, 4095), reader.text())
        case MessageType.EXITED:
            message = _exited(reader.u32(), reader.usage())
        case MessageType.LIMIT:
            message = Limit(reader.member(LimitKind))
        case MessageType.GONE:
            message = Gone(reader.usage())
        case MessageType.NOTIFIED:
            message = Notified(*reader.endpoint())
        case MessageType.LOOKED_UP:
            message = LookedUp(reader.host_name())
        case MessageType.REFUSED:
            # An item has at least its three numbers: more of them cannot be in a message.
            count = reader.number(1, MESSAGE_MAX // 12)
            message = Refused(tuple(reader.refusal() for _ in range(count)))
        case MessageType.KILLED_CALL:
            message = KilledCall(reader.number(0, 2**31 - 1))
        case kind:
            raise InitLied(f"message {kind} on a channel")
    reader.end()
    return message


def _exited(status: int, usage: Usage) -> Exited:
    """A wait status: a code in the second byte, or a signal in the first with 0x80 for a core."""
    if status & ~0xFF00 == 0:
        return Exited(status >> 8, None, False, usage)
    if status & ~0xFF == 0 and status & 0x7F in range(1, SIGNALS + 1):
        return Exited(None, status & 0x7F, bool(status & 0x80), usage)
    raise InitLied(f"no process ends with the wait status {status:#x}")


class _Reader:
    """Takes a message apart, and refuses it where it is not what it says."""

    def __init__(self, data: bytes) -> None:
        if not HEADER_BYTES <= len(data) <= MESSAGE_MAX:
            raise InitLied(f"a message of {len(data)} bytes")
        kind, flags, zero, length = struct.unpack_from("<BBHI", data)
        if flags or zero or length != len(data) - HEADER_BYTES:
            raise InitLied("a malformed header")
        self.kind: int = kind
        self._data = data
        self._at = HEADER_BYTES

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise InitLied("a message that ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def u32(self) -> int:
        return int.from_bytes(self._take(4), "little")

    def number(self, low: int, high: int) -> int:
        value = self.u32()
        if not low <= value <= high:
            raise InitLied(f"a number out of range: {value}")
        return value

    def pid(self) -> int:
        return self.number(1, 2**22)

    def amount(self) -> int:
        value = int.from_bytes(self._take(8), "little")
        if value >= 2**63:
            raise InitLied(f"an amount out of range: {value}")
        return value

    def usage(self) -> Usage:
        return Usage(self.amount(), self.amount(), self.amount())

    def text(self) -> str:
        data = self._take(self.number(0, TEXT_MAX))
        if b"\0" in data:
            raise InitLied("a text with NUL")
        return data.decode("utf-8", "surrogateescape")

    def endpoint(self) -> tuple[str, int]:
        family, port = self.u32(), self.number(1, 65535)
        address = self._take(16)
        if family == _AF_INET6:
            return str(IPv6Address(address)), port
        if family != _AF_INET or any(address[4:]):
            raise InitLied("not an Internet address")
        return str(IPv4Address(address[:4])), port

    def host_name(self) -> str:
        name = self.text()
        if len(name) > 253 or not _HOST_NAME.fullmatch(name):
            raise InitLied("not the name of a host")
        return name

    def refusal(self) -> Refusal:
        errno, wanted, path = self.number(0, 4095), self.member(Wanted), self.text()
        if not path.startswith("/"):
            raise InitLied("a relative path")
        return Refusal(errno, wanted, path)

    def member(self, kind: type[_Member]) -> _Member:
        value = self.u32()
        try:
            return kind(value)
        except ValueError:
            raise InitLied(f"{value} is not a {kind.__name__}") from None

    def end(self) -> None:
        if self._at != len(self._data):
            raise InitLied("a message that goes on after its end")
