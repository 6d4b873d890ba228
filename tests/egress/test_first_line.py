"""What passes unread: nothing that any server could read as a request, in any pieces."""

from __future__ import annotations

import random
import ssl
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.egress.sniffing.first_line import (
    LineGuard,
    RequestInStream,
    could_be_http,
    is_request,
)

REQUESTS = [
    b"GET / HTTP/1.1", b"get /x http/1.0", b"\x80\x81 / HTTP/1.1", b"GET /", b"GET x", b"get /x",
    b"M" * 5000 + b" / HTTP/1.1", b"PRI * HTTP/2.0", b"SSH-2.0-x / HTTP/1.1", b"x\x0bHTTP/1.1",
    b"GET\xa0/\xa0HTTP/1.1", b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2", b"x http://other.test/",
]  # fmt: skip
OTHERS = [
    b"EHLO example.org", b"*1", b"NICK me", b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3", b"get key",
    b"OPTIONS rtsp://example.org RTSP/1.0", b"{\"jsonrpc\": \"2.0\"}", b"USER anonymous",
]  # fmt: skip


def feed(*pieces: bytes) -> None:
    guard = LineGuard()
    for piece in pieces:
        guard.feed(piece)


@pytest.mark.parametrize("line", REQUESTS)
@pytest.mark.parametrize("before", [b"", b"\r\n\n", b" \t\0\x1f"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_request_is_known_in_every_cut(line: bytes, before: bytes, end: bytes) -> None:
    data = before + line + end
    assert could_be_http(data) is True
    for cut in range(1, min(len(data), 80)):
        with pytest.raises(RequestInStream):
            feed(data[:cut], data[cut:])


@pytest.mark.parametrize("line", OTHERS)
def test_other_protocols_pass(line: bytes) -> None:
    assert could_be_http(line + b"\r\n") is False
    guard = LineGuard()
    for at in range(len(line)):
        guard.feed(line[at : at + 1])
    assert not guard.passed
    guard.feed(b"\r\n")
    assert guard.passed


@given(st.binary(max_size=60), st.lists(st.integers(1, 7), max_size=30))
def test_the_guard_agrees_with_the_whole_line(data: bytes, sizes: list[int]) -> None:
    """In pieces as in one: it passes only lines that are no request as a whole."""
    line = data.replace(b"\n", b"") + b"\n"
    guard, at = LineGuard(), 0
    try:
        for size in [*sizes, len(line)]:
            guard.feed(line[at : at + size])
            at += size
    except RequestInStream:
        return
    assert not is_request(line[:-1])


@pytest.mark.parametrize("filler", [b"/", b" ", b" /x\n", b"GET /", b"\x85/"])
def test_random_bytes_of_a_hello_are_no_request(filler: bytes) -> None:
    """A blank and a slash are in one of a few hundred hellos."""
    start = b"\x16\3\1\2\0\1\0\1\xfc\3\3"
    for data in (start + filler * 8, start[:-3] + b"A\3\3" + filler * 8, filler * 8):
        LineGuard(is_tls=True).feed(data)
    with pytest.raises(RequestInStream):
        LineGuard(is_tls=True).feed(start + b" / HTTP/1.1")


def test_lines_of_random_bytes_pass() -> None:
    """Binary protocols: of many random beginnings hardly any is taken for a request."""
    rng, refused = random.Random(1), 0
    for _ in range(20_000):
        try:
            feed(rng.randbytes(400))
        except RequestInStream:
            refused += 1
    assert refused <= 20


def test_a_real_hello_passes_the_guard() -> None:
    """Its list of protocols names http/1.1."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    into, outof = ssl.MemoryBIO(), ssl.MemoryBIO()
    talk = context.wrap_bio(into, outof, server_hostname="example.org")
    with suppress(ssl.SSLWantReadError):
        talk.do_handshake()
    guard = LineGuard()
    guard.feed(outof.read())
    guard.feed(bytes(range(256)))
    assert guard.passed
