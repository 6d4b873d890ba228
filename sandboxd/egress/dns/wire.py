"""DNS messages: the subset that the responder and a stub resolver need. Pure.

All input is hostile: lengths are checked, and compression pointers may only point backwards.
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

import msgspec

from sandboxd.policy.network.host_rules import Address

A, CNAME, PTR, AAAA, ANY = 1, 5, 12, 28, 255
INTERNET = 1
NOERROR, FORMERR, NXDOMAIN = 0, 1, 3
UDP_MAX = 4096
_HEADER = struct.Struct("!HHHHHH")
_RESPONSE, _TRUNCATED, _RECURSE, _CAN_RECURSE = 0x8000, 0x0200, 0x0100, 0x0080
_OPCODE = 0x7800


class DnsMalformed(Exception):
    """The message cannot be parsed."""


class DnsQuestion(msgspec.Struct, frozen=True):
    """`name` is in lower case, without the final dot; bytes that are not text are escaped."""

    number: int
    name: str
    kind: int
    recurse: bool
    raw: bytes  # name, type and class, to be repeated in the answer


class DnsRecord(msgspec.Struct, frozen=True):
    kind: int
    data: bytes
    ttl_s: int = 60


def parse_question(message: bytes) -> DnsQuestion:
    """The one question of a query. DnsMalformed for anything else."""
    if len(message) < _HEADER.size:
        raise DnsMalformed("shorter than a header")
    number, flags, questions, _, _, _ = _HEADER.unpack_from(message)
    if flags & (_RESPONSE | _OPCODE) or questions != 1:
        raise DnsMalformed("not a query with one question")
    name, end = _name(message, _HEADER.size)
    if end + 4 > len(message):
        raise DnsMalformed("the question is cut off")
    kind, family = struct.unpack_from("!HH", message, end)
    if family not in (INTERNET, ANY):
        raise DnsMalformed("not a question about the Internet")
    return DnsQuestion(number, name, kind, bool(flags & _RECURSE), message[_HEADER.size : end + 4])


def answer(question: DnsQuestion, code: int, records: tuple[DnsRecord, ...] = ()) -> bytes:
    flags = _RESPONSE | _CAN_RECURSE | (_RECURSE if question.recurse else 0) | code
    parts = [_HEADER.pack(question.number, flags, 1, len(records), 0, 0), question.raw]
    for record in records:
        # The name is a pointer to the question's.
        parts.append(struct.pack("!HHHIH", 0xC000 | _HEADER.size, record.kind, INTERNET,
                                 record.ttl_s, len(record.data)))  # fmt: skip
        parts.append(record.data)
    return b"".join(parts)


def refusal_of(message: bytes) -> bytes | None:
    """FORMERR for a message that cannot be parsed; None if it has no usable id."""
    if len(message) < 2:
        return None
    return _HEADER.pack(struct.unpack_from("!H", message)[0], _RESPONSE | FORMERR, 0, 0, 0, 0)


def query(number: int, name: str, kind: int) -> bytes:
    head = _HEADER.pack(number, _RECURSE, 1, 0, 0, 0)
    return head + encode_name(name) + struct.pack("!HH", kind, INTERNET)


def encode_name(name: str) -> bytes:
    labels = [label.encode("ascii") for label in name.split(".") if label]
    return b"".join(bytes((len(label),)) + label for label in labels) + b"\0"


class Reply(msgspec.Struct, frozen=True):
    code: int
    truncated: bool
    addresses: tuple[Address, ...]


def parse_reply(message: bytes, number: int, name: str, kind: int) -> Reply:
    """The addresses in the answer to exactly this question, following CNAMEs."""
    if len(message) < _HEADER.size:
        raise DnsMalformed("shorter than a header")
    got, flags, questions, answers, _, _ = _HEADER.unpack_from(message)
    if got != number or not flags & _RESPONSE or questions != 1:
        raise DnsMalformed("not the answer to this question")
    asked, at = _name(message, _HEADER.size)
    if asked != name or at + 4 > len(message):
        raise DnsMalformed("the answer is about another name")
    at += 4
    names, found = {name}, []
    for _ in range(answers if not flags & _TRUNCATED else 0):
        owner, at = _name(message, at)
        if at + 10 > len(message):
            raise DnsMalformed("a record is cut off")
        record, _, _, size = struct.unpack_from("!HHIH", message, at)
        at += 10
        data = message[at : at + size]
        if len(data) != size:
            raise DnsMalformed("a record is cut off")
        if record == CNAME and owner in names:
            names.add(_name(message, at)[0])
        elif record == kind and owner in names:
            found.append(_address(kind, data))
        at += size
    code = flags & 0xF
    return Reply(code, bool(flags & _TRUNCATED), tuple(found) if code == NOERROR else ())


def _address(kind: int, data: bytes) -> Address:
    if len(data) != (4 if kind == A else 16):
        raise DnsMalformed("an address of the wrong length")
    return IPv4Address(data) if kind == A else IPv6Address(data)


def _name(message: bytes, at: int) -> tuple[str, int]:
    """The name at an offset, and the offset after it."""
    labels: list[str] = []
    end: int | None = None
    total = 0
    while True:
        if at >= len(message):
            raise DnsMalformed("a name is cut off")
        size = message[at]
        if size & 0xC0 == 0xC0:
            if at + 1 >= len(message):
                raise DnsMalformed("a name is cut off")
            target = (size & 0x3F) << 8 | message[at + 1]
            if target >= at:
                raise DnsMalformed("a pointer that does not lead backwards")
            end = at + 2 if end is None else end
            at = target
            continue
        if size & 0xC0:
            raise DnsMalformed("an unknown kind of label")
        if size == 0:
            return ".".join(labels).lower(), at + 1 if end is None else end
        label = message[at + 1 : at + 1 + size]
        total += size + 1
        if len(label) != size or total > 254:
            raise DnsMalformed("a name is cut off or too long")
        labels.append(_text(label))
        at += 1 + size


def _text(label: bytes) -> str:
    plain = label.isascii() and label.decode("latin-1").isprintable()
    plain = plain and not any(odd in label for odd in b". ")
    return label.decode("ascii") if plain else "".join(f"\\{byte:03d}" for byte in label)
