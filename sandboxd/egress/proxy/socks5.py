"""SOCKS5 (RFC 1928, 1929): the handshake of a client that connects, with name and password."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from sandboxd.egress.sockets import Inbound, send_all

VERSION = 5
SUCCEEDED, NOT_ALLOWED, HOST_UNREACHABLE, NOT_SUPPORTED = 0, 2, 4, 7
_LOGIN, _NO_METHOD = 2, 0xFF
_CONNECT = 1
_V4, _NAME, _V6 = 1, 3, 4


class SocksMalformed(Exception):
    pass


async def _take(inbound: Inbound, size: int) -> bytes:
    while len(inbound.buffer) < size:
        if not await inbound.more():
            raise SocksMalformed("the client has gone")
    return inbound.taken(size)


async def read_greeting(inbound: Inbound) -> tuple[str, str]:
    """The client's name and password; nothing else is offered."""
    _, count = await _take(inbound, 2)
    methods = await _take(inbound, count)
    if _LOGIN not in methods:
        await send_all(inbound.sock, bytes((VERSION, _NO_METHOD)))
        raise SocksMalformed("no login is offered")
    await send_all(inbound.sock, bytes((VERSION, _LOGIN)))
    version, size = await _take(inbound, 2)
    if version != 1:
        raise SocksMalformed("an unknown kind of login")
    user = await _take(inbound, size)
    secret = await _take(inbound, (await _take(inbound, 1))[0])
    return user.decode("latin-1"), secret.decode("latin-1")


async def answer_login(inbound: Inbound, *, accepted: bool) -> None:
    await send_all(inbound.sock, bytes((1, 0 if accepted else 1)))


async def read_request(inbound: Inbound) -> tuple[str, int]:
    """Host (an IPv6 address in brackets) and port."""
    version, command, _, kind = await _take(inbound, 4)
    if version != VERSION or command != _CONNECT or kind not in (_V4, _NAME, _V6):
        await answer(inbound, NOT_SUPPORTED)
        raise SocksMalformed("only CONNECT is supported")
    if kind == _V4:
        host = str(IPv4Address(await _take(inbound, 4)))
    elif kind == _V6:
        host = f"[{IPv6Address(await _take(inbound, 16))}]"
    else:
        name = await _take(inbound, (await _take(inbound, 1))[0])
        host = name.decode("latin-1")
        if ":" in host or "[" in host:
            raise SocksMalformed("not a name")
    return host, int.from_bytes(await _take(inbound, 2), "big")


async def answer(inbound: Inbound, code: int) -> None:
    await send_all(inbound.sock, bytes((VERSION, code, 0, _V4, 0, 0, 0, 0, 0, 0)))
