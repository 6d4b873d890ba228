"""Messages to and from the sandbox's init as bytes; no I/O.

Outgoing messages are checked, so that a bug in the daemon raises here instead of ending a sandbox.
Incoming messages are hostile: a command that took over the init could send anything, so decoding is
strict and raises InitProtocolViolation.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum, IntFlag
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import TypeVar

from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.messages import Encoded

WIRE_VERSION = 1
HEADER_BYTES = 8
MESSAGE_MAX = 65536
PAYLOAD_MAX = 8388608
FDS_MAX = 8
FILTER_MAX = 4096
TEXT_MAX = 4000
LONG_LINE = 4096  # words and characters of a command line that is not kept
LARGE_ENVIRONMENT = 64 * 1024  # characters of the values of one that is not kept

RLIMITS = 16
"""Linux numbers its resource limits from 0 to 15."""

SIGNALS = 64
PID_MAX = 2**22

# Linux's numbers, wherever this is decoded.
_AF_INET, _AF_INET6 = 2, 10
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*", re.ASCII)

_Member = TypeVar("_Member", bound=IntEnum)


class InitProtocolViolation(ValueError):
    """A protocol violation by the init: the sandbox must be ended."""


class HeaderFlag(IntFlag):
    PAYLOAD_IN_FD = 1


class MessageType(IntEnum):
    SETUP = 1
    EXEC = 2
    SIGNAL = 3
    KILL = 4
    CLONE = 5
    ENTER = 6
    READY = 65
    SETUP_FAILED = 66
    ISOLATION_LOST = 67
    PROTOCOL_ERROR = 68
    CLONED = 69
    STARTED = 80
    EXEC_FAILED = 81
    EXITED = 82
    LIMIT = 83
    GONE = 84
    NOTIFIED = 85
    LOOKED_UP = 86
    REFUSED = 87
    KILLED_CALL = 88
    NO_SPACE = 89
    REFUSED_PEER = 90
    REFUSED_SOCKET = 91
    LEFT = 92


def encode(request: wire.Request) -> Encoded:
    """Raises ValueError for messages that the init would refuse."""
    match request:
        case wire.Setup():
            if not request.encoded:
                request.encoded.append(_framed(MessageType.SETUP, _setup(request)))
            return request.encoded[0]
        case wire.Exec():
            return _exec(request)
        case wire.Signal():
            return _framed(MessageType.SIGNAL, _signal(request))
        case wire.Kill():
            return _framed(MessageType.KILL, b"")
        case wire.CloneRequest():
            return _CLONE
        case wire.EnterRequest():
            return _ENTER


def _framed(kind: MessageType, payload: bytes) -> Encoded:
    if len(payload) > PAYLOAD_MAX:
        raise ValueError(f"a message to the init of {len(payload)} bytes is too long")
    if HEADER_BYTES + len(payload) <= MESSAGE_MAX:
        return Encoded(struct.pack("<BBHI", kind, 0, 0, len(payload)) + payload)
    header = struct.pack("<BBHI", kind, HeaderFlag.PAYLOAD_IN_FD, 0, len(payload))
    return Encoded(header, payload)


_CLONE, _ENTER = _framed(MessageType.CLONE, b""), _framed(MessageType.ENTER, b"")


_length = struct.Struct("<I").pack


def _string(value: str) -> bytes:
    data = value.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ValueError("a string for the init contains NUL")
    return _length(len(data)) + data


def _array(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return struct.pack("<I", len(encoded)) + b"".join(encoded)


def _unsigned(layout: str, *values: int) -> bytes:
    try:
        return struct.pack("<" + layout, *values)
    except struct.error as error:
        raise ValueError(f"a number for the init is out of range: {values}") from error


def _setup(setup: wire.Setup) -> bytes:
    if setup.rules and not setup.flags & wire.SetupFlag.HAS_RULESET:
        raise ValueError("Landlock rules without a ruleset")
    return b"".join(
        (
            _unsigned("I", setup.flags),
            _checks(setup.checks),
            _array(_string(r.path) + _unsigned("Q", r.access) for r in setup.rules),
            _array(_string(path) for path in setup.scratch),
            _checks(setup.sockets),
        )
    )


def _checks(checks: Sequence[wire.Check]) -> bytes:
    return _array(_unsigned("QQ", c.device, c.inode) + _string(c.path) for c in checks)


def _variable(name: str, value: str) -> bytes:
    if not name or "=" in name:
        raise ValueError(f"not the name of an environment variable: {name!r}")
    return _string(f"{name}={value}")


def _encode_environment(env: tuple[tuple[str, str], ...]) -> bytes:
    return _array(_variable(name, value) for name, value in env)


# The next command of the same plan has the same.
_known_environment = lru_cache(maxsize=48)(_encode_environment)


def _is_large(env: Sequence[tuple[str, str]]) -> bool:
    return sum([len(value) for _, value in env]) > LARGE_ENVIRONMENT


def _rlimit(limit: wire.Rlimit) -> bytes:
    if limit.resource not in range(RLIMITS):
        raise ValueError(f"no such resource limit: {limit.resource}")
    return _unsigned("IQQ", limit.resource, limit.soft, limit.hard)


def _exec(request: wire.Exec) -> Encoded:
    if not request.argv:
        raise ValueError("an empty argv")
    fields = (
        request.flags, request.rows, request.columns, request.cwd, tuple(request.argv),
        tuple(request.env), tuple(request.rlimits), request.tree_memory_bytes,
        request.tree_cpu_us, request.tree_processes, request.wall_ms,
    )  # fmt: skip
    is_long = len(request.argv) + sum(map(len, request.argv)) > LONG_LINE
    if is_long or _is_large(request.env):
        return _encode_exec(*fields)
    return _known_exec(*fields)


def _encode_exec(
    flags: int, rows: int, columns: int, cwd: str, argv: tuple[str, ...],
    env: tuple[tuple[str, str], ...], rlimits: tuple[wire.Rlimit, ...], memory_bytes: int,
    cpu_us: int, processes: int, wall_ms: int,
) -> Encoded:  # fmt: skip
    payload = (
        _unsigned("IHH", flags, rows, columns),
        _string(cwd),
        _array(_string(argument) for argument in argv),
        (_encode_environment if _is_large(env) else _known_environment)(env),
        _array(_rlimit(limit) for limit in rlimits),
        _unsigned("QQIQ", memory_bytes, cpu_us, processes, wall_ms),
    )
    return _framed(MessageType.EXEC, b"".join(payload))


# The next command of the same plan often has the same command line.
_known_exec = lru_cache(maxsize=48)(_encode_exec)


def _signal(signal: wire.Signal) -> bytes:
    if signal.number not in range(1, SIGNALS + 1):
        raise ValueError(f"no such signal: {signal.number}")
    return struct.pack("<iI", signal.number, signal.scope)


def decode_control(data: bytes) -> wire.Control:
    """Decode a message of the init on the control socket. Raises InitProtocolViolation."""
    reader = _MessageReader(data)
    message: wire.Control
    match reader.kind:
        case MessageType.READY:
            version, pid = reader.u32(), reader.pid()
            if version != WIRE_VERSION:
                raise InitProtocolViolation(f"the init speaks version {version} of the wire")
            message = wire.Ready(pid)
        case MessageType.SETUP_FAILED:
            stage = reader.member(wire.SetupStage)
            message = wire.SetupFailed(stage, reader.number(0, 4095), reader.text())
        case MessageType.ISOLATION_LOST:
            message = wire.IsolationLost(reader.text())
        case MessageType.PROTOCOL_ERROR:
            message = wire.ProtocolError(reader.text())
        case MessageType.CLONED:
            message = wire.Cloned(reader.number(0, 4095))
        case kind:
            raise InitProtocolViolation(f"message {kind} on the control socket")
    reader.end()
    return message


def decode_channel(data: bytes) -> wire.Channel:
    """Decode a message of a command's reaper on its channel. Raises InitProtocolViolation."""
    layout = _EVERY_COMMAND.get(data[0]) if data else None
    if layout is not None:
        return _decode_usual(data, layout)
    reader = _MessageReader(data)
    message: wire.Channel
    match reader.kind:
        case MessageType.EXEC_FAILED:
            failed = reader.member(wire.ExecStage)
            message = wire.ExecFailedMessage(failed, reader.number(1, 4095), reader.text())
        case MessageType.LIMIT:
            message = wire.Limit(reader.member(wire.LimitKind))
        case MessageType.NOTIFIED:
            message = wire.Notified(*reader.endpoint())
        case MessageType.LOOKED_UP:
            message = wire.LookedUp(reader.host_name())
        case MessageType.REFUSED_PEER:
            message = wire.RefusedPeer(reader.absolute())
        case MessageType.REFUSED_SOCKET:
            message = wire.RefusedSocket(wire.RefusedKind(reader.number(1, len(wire.RefusedKind))))
        case MessageType.REFUSED:
            # An item has at least three numbers, which bounds the count.
            count = reader.number(1, MESSAGE_MAX // 12)
            message = wire.RefusedPathsMessage(tuple(reader.refusal() for _ in range(count)))
        case MessageType.KILLED_CALL:
            message = wire.KilledCall(reader.number(0, 2**31 - 1))
        case MessageType.NO_SPACE:
            before = bool(reader.number(0, 1))
            message = wire.NoSpace(reader.absolute(), before)
        case MessageType.LEFT:
            left = reader.number(1, PID_MAX)
            names = reader.number(0, wire.MOST_LEFT_NAMES)
            message = wire.LeftMessage(left, tuple(reader.text() for _ in range(names)))
        case kind:
            raise InitProtocolViolation(f"message {kind} on a channel")
    reader.end()
    return message


# The messages of every command, each read by one call.
_EVERY_COMMAND = {
    MessageType.STARTED.value: struct.Struct("<BBHII"),
    MessageType.EXITED.value: struct.Struct("<BBHIIQQQ"),
    MessageType.GONE.value: struct.Struct("<BBHIQQQ"),
}
_STARTED, _GONE = MessageType.STARTED.value, MessageType.GONE.value


def _decode_usual(data: bytes, layout: struct.Struct) -> wire.Channel:
    if len(data) != layout.size:
        raise InitProtocolViolation(f"a message of {len(data)} bytes")
    kind, flags, zero, length, *numbers = layout.unpack(data)
    if flags or zero or length != len(data) - HEADER_BYTES:
        raise InitProtocolViolation("a malformed header")
    if kind == _STARTED:
        if not 1 <= numbers[0] <= PID_MAX:
            raise InitProtocolViolation(f"a number out of range: {numbers[0]}")
        return wire.StartedMessage(numbers[0])
    if max(numbers[-3:]) >= 2**63:
        raise InitProtocolViolation(f"an amount out of range: {max(numbers[-3:])}")
    usage = wire.TreeRusage(*numbers[-3:])
    return wire.Gone(usage) if kind == _GONE else _exited(numbers[0], usage)


def _exited(status: int, usage: wire.TreeRusage) -> wire.ExitedMessage:
    """A wait status: a code in the second byte, or a signal in the first with 0x80 for a core."""
    if status & ~0xFF00 == 0:
        return wire.ExitedMessage(status >> 8, None, usage)
    if status & ~0xFF == 0 and status & 0x7F in range(1, SIGNALS + 1):
        return wire.ExitedMessage(None, status & 0x7F, usage)
    raise InitProtocolViolation(f"no process ends with the wait status {status:#x}")


class _MessageReader:
    """Reads the fields of a message; InitProtocolViolation if it is malformed."""

    def __init__(self, data: bytes) -> None:
        if not HEADER_BYTES <= len(data) <= MESSAGE_MAX:
            raise InitProtocolViolation(f"a message of {len(data)} bytes")
        kind, flags, zero, length = struct.unpack_from("<BBHI", data)
        if flags or zero or length != len(data) - HEADER_BYTES:
            raise InitProtocolViolation("a malformed header")
        self.kind: int = kind
        self._data = data
        self._at = HEADER_BYTES

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise InitProtocolViolation("truncated message")
        self._at += size
        return self._data[self._at - size : self._at]

    def u32(self) -> int:
        return int.from_bytes(self._take(4), "little")

    def number(self, low: int, high: int) -> int:
        value = self.u32()
        if not low <= value <= high:
            raise InitProtocolViolation(f"a number out of range: {value}")
        return value

    def pid(self) -> int:
        return self.number(1, PID_MAX)

    def text(self) -> str:
        data = self._take(self.number(0, TEXT_MAX))
        if b"\0" in data:
            raise InitProtocolViolation("a text with NUL")
        return data.decode("utf-8", "surrogateescape")

    def endpoint(self) -> tuple[str, int]:
        family, port = self.u32(), self.number(1, 65535)
        address = self._take(16)
        if family == _AF_INET6:
            return str(IPv6Address(address)), port
        if family != _AF_INET or any(address[4:]):
            raise InitProtocolViolation("not an Internet address")
        return str(IPv4Address(address[:4])), port

    def host_name(self) -> str:
        name = self.text()
        if len(name) > 253 or not _HOST_NAME.fullmatch(name):
            raise InitProtocolViolation("not the name of a host")
        return name

    def refusal(self) -> wire.RefusedPath:
        errno, wanted = self.number(0, 4095), self.member(wire.Wanted)
        return wire.RefusedPath(errno, wanted, self.absolute())

    def absolute(self) -> str:
        path = self.text()
        if not path.startswith("/"):
            raise InitProtocolViolation("a relative path")
        return path

    def member(self, kind: type[_Member]) -> _Member:
        value = self.u32()
        try:
            return kind(value)
        except ValueError:
            raise InitProtocolViolation(f"{value} is not a {kind.__name__}") from None

    def end(self) -> None:
        if self._at != len(self._data):
            raise InitProtocolViolation("trailing bytes after a message")
