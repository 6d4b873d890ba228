"""Bytes of a command as JSON: text where they are UTF-8, base64 where they are not."""

from __future__ import annotations

import base64
import binascii

from sandboxd_proto.errors import InvalidParams
from sandboxd_proto.messages.execute import Encoding

_PIECE = 48 * 1024  # whole groups of three bytes


def encode(data: bytes) -> tuple[str, Encoding]:
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64_text(data), "base64"


def base64_text(data: bytes) -> str:
    """In pieces: one call holds the interpreter for all of it."""
    pieces = (base64.b64encode(data[at : at + _PIECE]) for at in range(0, len(data), _PIECE))
    return b"".join(pieces).decode("ascii")


def decode_base64(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidParams(f"{field} is not base64: {error}", field=field) from None


def incomplete_tail(data: bytes) -> int:
    """How many bytes at the end are the start of a character that is not complete yet."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        return back if _width(byte) > back else 0
    return 0


def _width(lead: int) -> int:
    """The length of the character that starts with this byte."""
    if lead >= 0xF0:
        return 4 if lead < 0xF8 else 1
    return 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1


class TextStream:
    """Cuts a byte stream into pieces that can be sent; a character cut by a read is held back."""

    def __init__(self) -> None:
        self._held = b""

    def piece(self, data: bytes) -> tuple[str, Encoding] | None:
        if self._held:
            data = self._held + data
        tail = incomplete_tail(data)
        if tail:
            try:
                text = data[:-tail].decode()
            except UnicodeDecodeError:
                tail = 0
            else:
                self._held = data[-tail:]
                return (text, "utf-8") if text else None
        self._held = b""
        return encode(data) if data else None

    def rest(self) -> tuple[str, Encoding] | None:
        held, self._held = self._held, b""
        return encode(held) if held else None


def incomplete_head(data: bytes) -> int:
    """How many bytes at the beginning belong to a character whose first byte is missing."""
    count = 0
    while count < min(3, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count
