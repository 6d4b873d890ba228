"""What an init says, read by the daemon: whatever a captured init sends is a lie or a message."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from fuzz.driver import Target

from sandboxd.linux.init_client import codec


def _framed(kind: int, payload: bytes) -> bytes:
    return struct.pack("<BBHI", kind, 0, 0, len(payload)) + payload


def seeds() -> Sequence[bytes]:
    text = struct.pack("<I", 4) + b"text"
    usage = struct.pack("<QQQ", 1, 2, 3)
    numbers = (struct.pack("<I", 1), struct.pack("<II", 1, 2), struct.pack("<III", 1, 1, 0))
    payloads = (b"", *numbers, numbers[0] + usage, text, numbers[1] + text,
                struct.pack("<I", 1) + struct.pack("<III", 1, 13, 4) + b"text")  # fmt: skip
    return [_framed(kind, payload) for kind in codec.MessageType for payload in payloads]


def check(data: bytes) -> None:
    for decode in (codec.decode_control, codec.decode_channel):
        try:
            message = decode(data)
        except codec.InitProtocolViolation:
            continue
        assert len(repr(message)) <= 12 * len(data) + 400


TARGET = Target("init_answers", seeds, check)
