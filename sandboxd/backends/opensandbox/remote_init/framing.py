"""The frames between the daemon and the bridge inside (linux/init/remote). Pure.

Outward from the sandbox they are numbered lines of base64, because execd's output is text by lines;
inward they are files. What comes is hostile: a command may have taken the bridge or execd over.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterable
from enum import IntEnum

import msgspec

from sandboxd.linux.init_client.codec import MESSAGE_MAX, InitProtocolViolation

WINDOW = 256 << 10  # bytes of one stream on the way
INPUT_CLOSED = 0xFFFFFFFF
NO_PART = 0xFFFFFFFF
_LINE = struct.Struct("<IBBI")
_FRAME = struct.Struct("<IBI")


class Kind(IntEnum):
    CONTROL = ord("c")
    CHANNEL = ord("k")
    EXEC = ord("x")
    INPUT = ord("i")
    OUTPUT = ord("o")
    ERRORS = ord("e")
    CREDIT = ord("a")
    DISCARD = ord("d")
    SIZE = ord("s")
    CLOSE = ord("q")


_OUTWARD = (Kind.CONTROL, Kind.CHANNEL, Kind.INPUT, Kind.OUTPUT, Kind.ERRORS, Kind.CLOSE)


class BridgeFrame(msgspec.Struct, frozen=True):
    """`command`: the number that the daemon gave it; 0 for the sandbox."""

    kind: Kind
    command: int
    data: bytes = b""


class LineReader:
    """Feed it the lines of one bridge, in order."""

    def __init__(self) -> None:
        self._next = 0
        self._begun: tuple[int, int, bytes] | None = None

    def feed(self, line: str) -> BridgeFrame | None:
        """A frame that is whole now. InitProtocolViolation for what no bridge sends."""
        try:
            raw = binascii.a2b_base64(line.encode("ascii"), strict_mode=True)
            number, kind, more, command = _LINE.unpack_from(raw)
        except (ValueError, struct.error):
            raise InitProtocolViolation("a line that is no frame") from None
        if number != self._next or more > 1 or kind not in _OUTWARD:
            raise InitProtocolViolation(f"line {number} where {self._next} was expected")
        self._next = (self._next + 1) & 0xFFFFFFFF
        begun, data = self._begun, raw[_LINE.size :]
        if begun is not None:
            if begun[:2] != (kind, command) or len(begun[2]) + len(data) > MESSAGE_MAX:
                raise InitProtocolViolation("a frame that does not go on")
            data = begun[2] + data
        self._begun = (kind, command, data) if more else None
        return None if more else BridgeFrame(Kind(kind), command, data)


def file_of(frames: Iterable[BridgeFrame]) -> bytes:
    """What is uploaded in one piece."""
    parts = []
    for frame in frames:
        parts += [_FRAME.pack(len(frame.data), frame.kind, frame.command), frame.data]
    body = b"".join(parts)
    return struct.pack("<I", len(body)) + body


def exec_data(flags: int, message: bytes, payload: bytes | None, program: bytes | None) -> bytes:
    """Of an EXEC frame: what goes as descriptors elsewhere goes with it."""
    parts = [struct.pack("<II", flags, len(message)), message]
    for part in (payload, program):
        parts.append(struct.pack("<I", NO_PART if part is None else len(part)) + (part or b""))
    return b"".join(parts)
