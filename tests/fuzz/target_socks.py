"""The handshake of SOCKS5, as a client's bytes drive it."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import anyio
from fuzz.driver import Target

from sandboxd.egress.proxy import socks5
from sandboxd.egress.sockets import Inbound

LOGIN = b"\5\1\2" + b"\1\x08sandboxd\x04word"


def seeds() -> Sequence[bytes]:
    return [
        LOGIN + b"\5\1\0\3\x0bexample.org\1\xbb",
        LOGIN + b"\5\1\0\1\x7f\0\0\1\0\x50",
        LOGIN + b"\5\1\0\4" + bytes(16) + b"\0\x50",
        LOGIN + b"\5\3\0\1\x7f\0\0\1\0\x50",
        b"\5\1\0",
        b"\5\3\0\1\2" + LOGIN[3:] + b"\5\1\0\3\1a\0\x50",
    ]


async def _handshake(inbound: Inbound) -> tuple[str, int]:
    await socks5.read_greeting(inbound)
    await socks5.answer_login(inbound, accepted=True)
    return await socks5.read_request(inbound)


def check(data: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        inbound = Inbound(here)
        inbound.buffer += data
        there.shutdown(socket.SHUT_WR)
        try:
            host, port = anyio.run(_handshake, inbound)
        except socks5.SocksMalformed:
            host, port = "", 0
        there.setblocking(False)
        answered = there.recv(4096) if host else b""
        assert len(answered) <= 64
        assert len(host) <= 255
        assert 0 <= port < 65536


TARGET = Target("socks", seeds, check, words=(b"\5\1\0", b"\3\xff", b"[::1]", b"a:b"))
