"""What strangers send, at any length and in any pieces: read exactly, or not at all."""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import nullcontext, suppress
from functools import cache

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.egress.dns import wire as dns_wire
from sandboxd.egress.http import head as http_head
from sandboxd.egress.http import upgrade
from sandboxd.egress.http.host_check import transparent_rewrite
from sandboxd.egress.http.responses import GateRefused
from sandboxd.egress.sniffing import first_line, tls_sni
from sandboxd.egress.sniffing.sni_check import check_server_name
from sandboxd.egress.sockets import Inbound
from sandboxd.egress.target import Target


@cache
def _hello(name: str | None, protocol: str = "") -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    if protocol:
        context.set_alpn_protocols([protocol])
    into, outof = ssl.MemoryBIO(), ssl.MemoryBIO()
    talk = context.wrap_bio(into, outof, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        talk.do_handshake()
    return outof.read()


@pytest.mark.parametrize("name", ["example.org", None])
def test_the_server_name_of_a_real_hello(name: str | None) -> None:
    assert tls_sni.parse(_hello(name)).server_name == name


@given(st.integers(1, 60))
def test_a_hello_in_records_of_any_size_is_the_same(size: int) -> None:
    message = _hello("example.org")[5:]
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    data = b"".join(b"\x16\x03\x01" + struct.pack("!H", len(p)) + p for p in pieces)
    assert tls_sni.parse(data).server_name == "example.org"


def test_a_hello_that_is_not_all_there_is_incomplete_at_every_byte() -> None:
    data = _hello("example.org")
    for end in range(len(data)):
        with pytest.raises(tls_sni.HelloIncomplete):
            tls_sni.parse(data[:end])


@pytest.mark.parametrize(
    ("name", "protocol", "passes"),
    [("example.org", "http/1.1", True), (None, "http/1.1", True), ("EXAMPLE.org", "", True),
     ("example.com", "", False), ("a.example.org", "", False),
     ("example.org", "GET http://other.test/ HTTP/1.1", False)],
)  # fmt: skip
def test_a_hello_must_name_the_host_and_hold_no_request(
    name: str | None, protocol: str, passes: bool
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        inbound = Inbound(ours)
        inbound.buffer += _hello(name, protocol)
        refused = nullcontext() if passes else pytest.raises(GateRefused)
        with refused:
            anyio.run(check_server_name, inbound, Target("example.org", 443))


def test_two_server_names_are_refused() -> None:
    entry = b"\0" + struct.pack("!H", 1) + b"a"
    names = struct.pack("!H", 2 * len(entry)) + entry * 2
    extension = struct.pack("!HH", 0, len(names)) + names
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0"
    body += struct.pack("!H", len(extension)) + extension
    message = b"\1" + len(body).to_bytes(3, "big") + body
    with pytest.raises(tls_sni.HelloMalformed, match="more than one"):
        tls_sni.parse(b"\x16\3\1" + struct.pack("!H", len(message)) + message)


@given(st.binary(max_size=400))
def test_no_bytes_break_the_hello_parser(data: bytes) -> None:
    for prefix in (b"", b"\x16\x03\x01", _hello("example.org")[:60]):
        with suppress(tls_sni.HelloMalformed, tls_sni.HelloIncomplete):
            tls_sni.parse(prefix + data)


@given(st.binary(max_size=300))
def test_no_bytes_break_the_dns_parsers(data: bytes) -> None:
    head = struct.pack("!HHHHHH", 1, 0x8180, 1, 2, 0, 0) + b"\1a\0\0\1\0\1"
    for message in (data, head + data):
        with suppress(dns_wire.DnsMalformed):
            dns_wire.parse_question(message)
        with suppress(dns_wire.DnsMalformed):
            dns_wire.parse_reply(message, 1, "a", dns_wire.A)


@pytest.mark.parametrize("label", [b"to allow it add", b"a.b", b"\x1b[31m", "ü".encode()])
def test_a_label_of_a_query_is_one_word(label: bytes) -> None:
    name = bytes((len(label),)) + label + b"\4test\0"
    query = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + name + b"\0\1\0\1"
    found = dns_wire.parse_question(query).name
    assert found.isprintable()
    assert found.count(".") == 1
    assert " " not in found


def test_pointers_that_lead_in_circles_are_refused() -> None:
    message = struct.pack("!HHHHHH", 1, 0x100, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1"
    with pytest.raises(dns_wire.DnsMalformed):
        dns_wire.parse_question(message)


def test_an_answer_follows_aliases_and_nothing_else() -> None:
    question = dns_wire.encode_name("a.test") + b"\0\1\0\1"
    alias = dns_wire.encode_name("b.test")
    records = (
        (b"\xc0\x0c", 5, alias),
        (alias, 1, bytes((93, 184, 216, 34))),
        (dns_wire.encode_name("c.test"), 1, bytes((127, 0, 0, 1))),
    )
    message = struct.pack("!HHHHHH", 9, 0x8180, 1, len(records), 0, 0) + question
    for owner, kind, data in records:
        message += owner + struct.pack("!HHIH", kind, 1, 5, len(data)) + data
    reply = dns_wire.parse_reply(message, 9, "a.test", dns_wire.A)
    assert [str(a) for a in reply.addresses] == ["93.184.216.34"]
    with pytest.raises(dns_wire.DnsMalformed):
        dns_wire.parse_reply(message, 8, "a.test", dns_wire.A)
    with pytest.raises(dns_wire.DnsMalformed):
        dns_wire.parse_reply(message, 9, "z.test", dns_wire.A)


def test_a_head_is_read_and_rendered() -> None:
    raw = b"GET /a?b HTTP/1.1\r\nHost: example.org\r\nX-Y:  z \r\n\r\n"
    head = http_head.parse(raw)
    assert (head.method, head.target, head.length, head.all("x-y")) == ("GET", "/a?b", 0, ["z"])
    assert head.rendered("/c", {"host"}) == b"GET /c HTTP/1.1\r\nX-Y: z\r\n\r\n"
    assert http_head.head_end(raw + b"more") == len(raw)
    assert http_head.head_end(raw[:-1]) == -1


@pytest.mark.parametrize(
    ("fields", "passed"),
    [
        ("Connection: Upgrade\r\nUpgrade: websocket\r\n", True),
        ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n", False),
        ("Upgrade: websocket\r\n", False),
    ],
)
def test_only_an_upgrade_that_names_no_further_hosts_is_asked_for(
    fields: str, passed: bool
) -> None:
    """HTTP/2 without TLS could name any host in any request. Java asks for it by default."""
    raw = f"GET / HTTP/1.1\r\nHost: example.org\r\n{fields}\r\n".encode()
    rewrite = transparent_rewrite(Target("example.org", 80))
    assert (b"upgrade" in rewrite(http_head.parse(raw), True).lower()) is passed
    assert b"upgrade" not in rewrite(http_head.parse(raw), False).lower()


@pytest.mark.parametrize(
    ("line", "host", "passes"),
    [("GET / HTTP/1.1", "example.org", True), ("GET / HTTP/1.1", "example.org:80", True),
     ("GET / HTTP/1.1", "example.org:81", False), ("GET / HTTP/1.1", "other.test", False),
     ("GET http://example.org/ HTTP/1.1", "example.org", True),
     ("GET http://example.org:81/ HTTP/1.1", "example.org", False),
     ("GET http://other.test/ HTTP/1.1", "example.org", False)],
)  # fmt: skip
def test_a_request_must_name_the_host_and_port_of_its_connection(
    line: str, host: str, passes: bool
) -> None:
    head = http_head.parse(f"{line}\r\nHost: {host}\r\n\r\n".encode())
    with nullcontext() if passes else pytest.raises(GateRefused):
        transparent_rewrite(Target("example.org", 80))(head, True)


_ASKED = (
    "GET / HTTP/1.1\r\nHost: example.org\r\nConnection: Upgrade\r\nUpgrade: {}\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_ACCEPTED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"  # RFC 6455, 1.3
)
_TCP = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


@pytest.mark.parametrize(
    ("asked", "answer", "accepted"),
    [
        ("websocket", _ACCEPTED, True),
        ("WebSocket", _ACCEPTED.replace(b"Upgrade: w", b"upgrade:  W"), True),
        ("tcp", _TCP, True),
        ("websocket, tcp", _TCP, True),
        ("websocket", _TCP, False),
        ("tcp", _ACCEPTED, False),
        ("websocket", _ACCEPTED.replace(b"s3pP", b"S3pP"), False),
        ("websocket", _ACCEPTED.replace(b"Upgrade: websocket\r\n", b""), False),
        ("tcp", b"HTTP/1.1 101 OK\r\n\r\n", False),
        ("tcp", _TCP.replace(b" 101", b" 1012"), False),
        ("tcp", _TCP.replace(b" 101", b" 200"), False),
        ("tcp", _TCP[:-2], False),
        ("h2c", _TCP.replace(b"tcp", b"h2c"), False),
    ],
)
def test_an_upgrade_has_to_be_agreed_to(asked: str, answer: bytes, accepted: bool) -> None:
    head = http_head.parse(_ASKED.format(asked).encode())
    assert upgrade.is_accepted(answer + b"more", head) is accepted
    decided = [size for size in range(len(answer) + 1) if not upgrade.is_undecided(answer[:size])]
    assert not upgrade.is_accepted(answer[: decided[0] - 1], head) if decided else True


def test_an_answer_is_not_waited_for_without_end() -> None:
    assert upgrade.is_undecided(b"HTTP/1.1 101 x\r\n" + b"X: y\r\n" * 100)
    assert not upgrade.is_undecided(b"HTTP/1.1 101 x\r\n" + b"X: y\r\n" * 10_000)
    assert not upgrade.is_undecided(b"HTTP/1.1 200 x\r\n")
    assert not upgrade.is_undecided(b"220 a banner\r\n")


@given(st.binary(max_size=200))
def test_no_bytes_break_the_head_parser(data: bytes) -> None:
    for raw in (data + b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + data + b"\r\n\r\n"):
        with suppress(http_head.HeadMalformed):
            head = http_head.parse(raw)
            # What is passed on is what was understood.
            assert http_head.parse(head.rendered(head.target, frozenset())).fields == head.fields


@pytest.mark.parametrize(
    ("start", "is_http"),
    [
        (b"GET / HTTP/1.1\r\n", True),
        (b"\r\n\r\nget /x http/1.1\n", True),
        (b"GET /x", None),
        (b"", None),
        (b"EHLO example.org\r\n", False),
        (b"AMQP\x00\x00\x09\x01", False),
        (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", False),
    ],
)
def test_http_is_told_from_other_protocols(start: bytes, is_http: bool | None) -> None:
    assert first_line.could_be_http(start) is is_http
