"""Heads of HTTP requests: what is passed on is what was understood, by another reader as well."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fuzz.driver import Target

from sandboxd.egress.http import head as http_head
from sandboxd.egress.http.head import HeadMalformed, RequestHead, head_end, parse
from sandboxd.egress.http.host_check import transparent_rewrite
from sandboxd.egress.http.responses import GateRefused
from sandboxd.egress.http.upgrade import is_accepted, is_undecided
from sandboxd.egress.target import Target as Connection
from sandboxd.egress.target import same_host

HOST = Connection("example.org", 80)


def seeds() -> Sequence[bytes]:
    return [
        b"GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\n",
        b"POST /a?b=c HTTP/1.1\r\nHost: example.org:80\r\nContent-Length: 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET http://example.org/x HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET //example.org/x HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: example.org\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n",
        b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
    ]


def check(data: bytes) -> None:
    try:
        end = head_end(data)
        head = parse(data[:end]) if end >= 0 else None
    except HeadMalformed:
        return
    if head is None:
        return
    answer = data[end:]
    if is_accepted(answer, head):
        assert not is_undecided(answer)
        assert re.match(rb"HTTP/1\.[01] 101", answer)
        assert {b"tcp", b"websocket"} & set(re.findall(rb"tcp|websocket", answer.lower()))
    again = parse(head.rendered(head.target, frozenset()))
    assert (again.fields, again.length, again.target) == (head.fields, head.length, head.target)
    for first in (True, False):
        try:
            sent = transparent_rewrite(HOST)(head, first)
        except GateRefused:
            continue
        _check_sent(sent, head)


def _check_sent(sent: bytes, head: RequestHead) -> None:
    """A lenient reader finds one request, no other host, and the same length of the body."""
    lenient = re.sub(rb"\r\n?", b"\n", sent)
    assert lenient.count(b"\n\n") == 1
    assert lenient.endswith(b"\n\n")
    for name in re.findall(rb"(?im)^[ \t]*host[ \t]*:[ \t]*([^\n]*)$", lenient):
        text = name.decode("latin-1").strip()
        assert same_host(http_head.split_authority(text)[0], HOST)
    named = re.match(rb"\S+ (?:[a-z]+:)?//([^/?# ]*)", lenient, re.IGNORECASE)
    if named is not None:
        host, _ = http_head.split_authority(named[1].decode("latin-1"))
        assert same_host(host, HOST)
    lengths = re.findall(rb"(?im)^[ \t]*content[-_]length[ \t]*:[ \t]*(\d+)", lenient)
    chunked = re.findall(rb"(?im)^[ \t]*transfer[-_]encoding[ \t]*:", lenient)
    assert len(lengths) + len(chunked) <= 1
    if head.length is None:
        assert chunked
    elif head.length:
        assert [int(text) for text in lengths] == [head.length]
    else:
        assert not chunked


TARGET = Target(
    "http_head", seeds, check,
    words=(b"\r\n", b"Host: other.test\r\n", b"Transfer-Encoding: chunked\r\n", b" \t", b"\x0b",
           b"Connection: host\r\n", b"Content-Length: 7\r\n", b"HTTP/1.1", b"//other.test/"),
)  # fmt: skip
