"""The base of every struct on the wire, and the one place that decodes and encodes JSON.

Structs are frozen, keyword-only and refuse unknown fields: a misspelt restriction must be an error,
not a restriction that silently does not exist.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from sandboxd_proto.errors import InvalidParams, ParseError

T = TypeVar("T")
_NAMED_FIELD = re.compile(r"(?:unknown|missing required) field `([^`]+)`")


class WireStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client sends: exact field names, nothing more."""


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon sends. A client ignores fields that it does not know (a newer daemon)."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(message: Any) -> bytes:
    """A name that is not UTF-8 (surrogates, as Python reads it) is shown escaped."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(_printable(msgspec.to_builtins(message)))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list | tuple) else value


def decode_json(frame: bytes) -> Any:
    """One JSON value. All three exceptions below really happen on hostile bytes."""
    try:
        return _decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ParseError(f"the message is not JSON: {error}") from None
    except RecursionError:
        raise ParseError("the message is not JSON: it is nested too deeply") from None


def convert(value: Any, into: type[T], *, where: str = "") -> T:
    """A decoded JSON value as a typed struct, or InvalidParams naming the field."""
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError as error:
        message, field = _split_path(str(error))
        named = _NAMED_FIELD.search(message)
        name = named.group(1) if named else None
        raise InvalidParams(message, field=_join(where, field, name)) from None
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
