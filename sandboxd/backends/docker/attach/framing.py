"""Separate the init's messages from the command's output in one stream, by a secret marker.

The init's side is attach_bridge.c: the marker, the sender, the length in hex, the message in hex.
Only bytes that could be the beginning of the marker are held back, so output passes at once.
"""

from __future__ import annotations

import secrets
from typing import Literal

import msgspec

from sandboxd.linux.init_client.codec import MESSAGE_MAX, InitProtocolViolation

_LENGTH_DIGITS = 8
From = Literal["control", "channel"]
_SPEAKERS: dict[bytes, From] = {b"c": "control", b"k": "channel"}


def new_word() -> str:
    return secrets.token_hex(16)


class FramedMessage(msgspec.Struct, frozen=True):
    speaker: From
    message: bytes


class Unframer:
    """Feed it one stream in pieces of any size."""

    def __init__(self, word: str) -> None:
        self._word = word.encode()
        self._held = b""

    def feed(self, data: bytes) -> tuple[bytes, list[FramedMessage]]:
        """(the command's output, messages). InitProtocolViolation for a malformed frame."""
        held = self._held + data
        printed = bytearray()
        said: list[FramedMessage] = []
        while (at := held.find(self._word)) >= 0:
            printed += held[:at]
            held = held[at:]
            frame = self._frame(held)
            if frame is None:
                self._held = held
                return bytes(printed), said
            length, one = frame
            said.append(one)
            held = held[length:]
        keep = _overlap(held, self._word)
        printed += held[: len(held) - keep]
        self._held = held[len(held) - keep :]
        return bytes(printed), said

    def rest(self) -> bytes:
        """The bytes that were held back, at the end of the stream."""
        held, self._held = self._held, b""
        return b"" if held.startswith(self._word) else held

    def _frame(self, held: bytes) -> tuple[int, FramedMessage] | None:
        """The first frame and its length; None while it is incomplete."""
        start = len(self._word) + 1 + _LENGTH_DIGITS
        if len(held) < start:
            return None
        speaker = _SPEAKERS.get(held[len(self._word) : len(self._word) + 1])
        try:
            length = int(held[len(self._word) + 1 : start], 16)
            end = start + 2 * length
            if speaker is None or length > MESSAGE_MAX:
                raise InitProtocolViolation("a frame of an unknown sender, or too long")
            if len(held) < end:
                return None
            return end, FramedMessage(speaker, bytes.fromhex(held[start:end].decode("ascii")))
        except ValueError:
            raise InitProtocolViolation("a frame that is not hexadecimal") from None


def _overlap(data: bytes, word: bytes) -> int:
    """How many bytes at the end of `data` may be the beginning of `word`."""
    for length in range(min(len(data), len(word) - 1), 0, -1):
        if data.endswith(word[:length]):
            return length
    return 0
