"""The decision what passes unread, against a model of the most lenient server."""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.driver import Target

from sandboxd.egress.sniffing.first_line import LineGuard, RequestInStream, could_be_http
from sandboxd.egress.sniffing.ssh_opening import SshMalformed, banner, first_packet

_BLANK = bytes(range(33))


def seeds() -> Sequence[bytes]:
    return [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", b"GET /\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"EHLO example.org\r\n", b"*1\r\n$4\r\nPING\r\n",
        b"\0\0\0\x08\x04\xd2\x16\x2f", b"\x16\3\1\2\0\1\0\1\xfc\3\3" + bytes(range(200)),
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n",
    ]  # fmt: skip


def is_taken_for_a_request(data: bytes) -> bool:
    """A server that skips blanks, splits at blanks and wants a version, or GET and a path."""
    line, newline, _ = data.lstrip(_BLANK).partition(b"\n")
    words = line.split()
    if not newline or len(words) < 2:
        return False
    return words[-1].upper().startswith(b"HTTP/") or (
        len(words) == 2 and words[0] == b"GET"
    )  # fmt: skip


def check(data: bytes) -> None:
    guard, sent = LineGuard(), bytearray()
    for at in range(0, len(data), 7):
        try:
            guard.feed(data[at : at + 7])
        except RequestInStream:
            break
        sent += data[at : at + 7]
    assert not is_taken_for_a_request(bytes(sent))
    if could_be_http(data) is False:
        assert not is_taken_for_a_request(data)
    try:
        line = banner(data)
        if line is not None:
            assert not is_taken_for_a_request(line)
        first_packet(data)
    except SshMalformed:
        pass


TARGET = Target(
    "first_line", seeds, check,
    words=(b" HTTP/1.1\r\n", b"http/", b"\x85", b"\xa0", b"\x1c", b"GET "),
)  # fmt: skip
