"""Heads of HTTP/1 requests, read strictly. Pure.

If the gate and the server parse one request differently, an attacker can hide a second request in
the body of the first (request smuggling). So everything ambiguous is refused: bare line ends,
folded lines, blanks before colons, two lengths, unknown encodings.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

import msgspec

MAX_HEAD = 64 * 1024
_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) ([!-~]{1,65536}) HTTP/1\.([01])\Z")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*\Z")
_DIGITS = re.compile(r"[0-9]{1,18}\Z")
_LENGTH = re.compile(r"(?:0|[1-9][0-9]{0,17})\Z")
# Fields that frame a request or name its host. A proxy drops the fields that `Connection` names.
FRAMING = frozenset({"host", "content-length", "transfer-encoding"})
_LETTERS = frozenset(name.replace("-", "") for name in FRAMING)


class HeadMalformed(Exception):
    """The text says what is wrong; `status` is for the HTTP answer."""

    def __init__(self, why: str, status: str = "400 Bad Request") -> None:
        super().__init__(why)
        self.status = status


class RequestHead(msgspec.Struct, frozen=True):
    """`length`: of the body, None if chunked. `raw`: the bytes as received."""

    raw: bytes
    method: str
    target: str
    minor: int
    fields: tuple[tuple[str, bytes], ...]  # names in lower case
    length: int | None

    @property
    def has_body(self) -> bool:
        return self.length != 0

    def all(self, name: str) -> list[str]:
        return [value.decode("latin-1") for key, value in self.fields if key == name]

    def tokens(self, name: str) -> set[str]:
        return {t.strip().lower() for value in self.all(name) for t in value.split(",")} - {""}

    def rendered(
        self, target: str, drop: AbstractSet[str], add: tuple[tuple[str, str], ...] = ()
    ) -> bytes:
        """The head with another target and without some fields."""
        lines = [f"{self.method} {target} HTTP/1.{self.minor}".encode("latin-1")]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in add]
        lines += [
            name.title().encode("ascii") + b": " + value
            for name, value in self.fields
            if name not in drop
        ]
        return b"\r\n".join([*lines, b"", b""])


def head_end(buffer: bytes | bytearray) -> int:
    """The offset where the head ends; -1 while it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end >= 0:
        return end + 4
    if len(buffer) > MAX_HEAD:
        raise HeadMalformed(
            f"the request's header has more than {MAX_HEAD >> 10} KiB",
            "431 Request Header Fields Too Large",
        )
    if buffer.find(b"\n\n") >= 0 or (buffer and buffer[0] in b"\r\n "):
        raise HeadMalformed("the request's line ends are wrong")
    return -1


def parse(raw: bytes) -> RequestHead:
    """Parse `raw`, which ends with the empty line."""
    if len(raw) > MAX_HEAD:
        raise HeadMalformed("the request's header is too long")
    lines = raw[:-4].split(b"\r\n")
    if any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines):
        raise HeadMalformed("a line end or NUL where none may be")
    request = _REQUEST.match(lines[0])
    if request is None:
        raise HeadMalformed("the request line is not one of HTTP/1.0 or 1.1")
    fields = tuple(map(_field, lines[1:]))
    _check_connection(fields)
    length = _length(fields, minor=int(request[3]))
    return RequestHead(
        raw, request[1].decode(), request[2].decode(), int(request[3]), fields, length
    )


def _field(line: bytes) -> tuple[str, bytes]:
    match = _FIELD.match(line)
    if match is None:
        raise HeadMalformed("a header field is not written `name: value`")
    name = match[1].decode("ascii").lower()
    if name not in FRAMING and "".join(filter(str.isalnum, name)) in _LETTERS:
        raise HeadMalformed("a header field is spelled like one that frames the request")
    return name, match[2]


def _check_connection(fields: tuple[tuple[str, bytes], ...]) -> None:
    for name, value in fields:
        if name in ("connection", "proxy-connection"):
            named = {token.strip().lower() for token in value.decode("latin-1").split(",")}
            if named & FRAMING:
                raise HeadMalformed("Connection names a field that frames the request")


def _length(fields: tuple[tuple[str, bytes], ...], *, minor: int) -> int | None:
    encodings = [value.lower() for name, value in fields if name == "transfer-encoding"]
    lengths = [value.decode("latin-1") for name, value in fields if name == "content-length"]
    if encodings:
        if lengths or encodings != [b"chunked"] or minor == 0:
            raise HeadMalformed("the length of the request's body is ambiguous")
        return None
    if not lengths:
        return 0
    if len(lengths) > 1 or not _LENGTH.match(lengths[0]):
        raise HeadMalformed("the length of the request's body is ambiguous")
    return int(lengths[0])


def split_authority(text: str, default_port: int | None = None) -> tuple[str, int | None]:
    """`host` or `host:port`, an IPv6 address in brackets. HeadMalformed for anything else."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise HeadMalformed("a host that is not one")
        port = rest[1:]
    else:
        host, _, port = text.partition(":")
    if not host or (port and (not _DIGITS.match(port) or not 0 < int(port) < 65536)):
        raise HeadMalformed("a host that is not one")
    return host, int(port) if port else default_port
