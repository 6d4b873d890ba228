"""The base of every struct on the wire, and the one place that decodes and encodes JSON.

Structs are frozen, keyword-only and refuse unknown fields: a misspelt restriction must be an error,
not a restriction that has no effect.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from sandboxd_proto.errors import InvalidParams, ParseError
from sandboxd_proto.secret import Secret

T = TypeVar("T")
MOST_VALUES = 150_000  # of one message, so that its decoding takes a bounded time
_SLICE = 1 << 16
_BACKSLASH = ord("\\")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class WireStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client sends: exact field names, nothing more."""


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon sends. A client ignores fields that it does not know (a newer daemon)."""


def _to_wire(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(f"a {type(value).__name__} cannot be sent")


def _from_wire(into: type[Any], value: Any) -> Any:
    if into is Secret and isinstance(value, str):
        return Secret(value)
    raise ValueError("Expected `str`")


_encoder = msgspec.json.Encoder(enc_hook=_to_wire)
_decoder = msgspec.json.Decoder()


def encode(message: Any) -> bytes:
    """A name that is not UTF-8 (surrogates, as Python reads it) is shown escaped."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(_printable(msgspec.to_builtins(message, enc_hook=_to_wire)))


def encode_strictly(message: Any) -> bytes:
    """UnicodeEncodeError for text that is not valid Unicode."""
    return _encoder.encode(message)


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list | tuple) else value


def decode_json(frame: bytes) -> Any:
    """One JSON value. Hostile bytes cause all three exceptions below."""
    if len(frame) > 2 * MOST_VALUES and has_more_values(frame, MOST_VALUES):
        raise ParseError(f"the message has more than {MOST_VALUES} values")
    try:
        return _decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ParseError(f"the message is not JSON: {error}") from None
    except RecursionError:
        raise ParseError("the message is not JSON: it is nested too deeply") from None


def decode(text: bytes | msgspec.Raw, into: Any) -> Any:
    """JSON as a typed value; MsgspecError if it is none."""
    return msgspec.json.decode(text, type=into, dec_hook=_from_wire)


def has_more_values(frame: bytes, most: int) -> bool:
    """Whether the JSON has more than `most` values, found without making them: an object for each
    takes a hundred times as long as a look at its bytes."""
    found = at = 0
    while found <= most:
        quote = frame.find(b'"', at, at + _SLICE)
        end = min(len(frame), at + _SLICE) if quote < 0 else quote
        # Every value but the first of an array or object has a comma before it.
        found += sum(frame.count(mark, at, end) for mark in (b",", b"[", b"{"))
        if end == len(frame):
            return found > most
        at = end if quote < 0 else _after_string(frame, quote)
    return True


def _after_string(frame: bytes, quote: int) -> int:
    """Where the string that starts at `quote` has ended."""
    end = frame.find(b'"', quote + 1)
    if end < 0:
        return len(frame)
    if frame[end - 1] != _BACKSLASH:
        return end + 1
    whole = _STRING.match(frame, quote)
    return whole.end() if whole is not None else len(frame)


def convert(value: Any, into: type[T], *, where: str = "") -> T:
    """A decoded JSON value as a typed struct, or InvalidParams naming the field."""
    try:
        return msgspec.convert(value, into, dec_hook=_from_wire)
    except msgspec.ValidationError as error:
        from sandboxd_proto.wording import sentence

        raw, field = _split_path(str(error))
        message, name, remedy = sentence(raw, field or "", value, into)
        raise InvalidParams(message, field=_join(where, field, name), remedy=remedy) from None
    except RecursionError:
        raise InvalidParams("the value is nested too deeply", field=where or None) from None


def _split_path(text: str) -> tuple[str, str | None]:
    """msgspec says "… - at `$.manifest.timeout`": the sentence, and the field without the `$.`."""
    message, separator, path = text.rpartition(" - at `$")
    if not separator:
        return text, None
    return message, path.rstrip("`").lstrip(".") or None


def _join(*parts: str | None) -> str | None:
    return ".".join(part for part in parts if part) or None
