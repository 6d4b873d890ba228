"""Bytes and the two ways in which JSON carries them: text, or base64 where it is not UTF-8."""

from __future__ import annotations

import binascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd_proto.messages.execute import Captured
    from sandboxd_proto.messages.notifications import Output


def bytes_of(part: Output | Captured) -> bytes:
    """What the command wrote, exactly."""
    return decode(part.data, part.encoding)


def decode(data: str, encoding: str) -> bytes:
    return binascii.a2b_base64(data) if encoding == "base64" else data.encode()


def base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def encode(data: str | bytes) -> bytes:
    """InvalidParams for text that is not valid Unicode."""
    if isinstance(data, bytes):
        return data
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        from sandboxd_proto.errors import InvalidParams

        raise InvalidParams(
            f"the text is not Unicode ({data[error.start]!r})", field="stdin", remedy="give bytes"
        ) from None
