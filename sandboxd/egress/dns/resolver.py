"""Resolve names to addresses, once for each connection.

The default is the system's resolver (it knows /etc/hosts and the VPN's server); `[egress] resolver`
names another server.
"""

from __future__ import annotations

import secrets
import socket
from ipaddress import ip_address
from typing import Protocol

import anyio
from anyio import CapacityLimiter, to_thread

from sandboxd.egress.dns import wire as dns
from sandboxd.egress.sockets import connected, receive_exactly, send_all
from sandboxd.policy.network.host_rules import Address, literal

LOOKUPS_AT_ONCE = 32
_TRIES, _TRY_S = 3, 2.5


class NameNotFound(Exception):
    """The name does not exist, or no server answered; the text says which."""


class Resolver(Protocol):
    async def addresses(self, name: str) -> list[Address]:
        """At least one address, or NotFound. Can be cancelled."""


def resolver(server: str | None) -> Resolver:
    return NameServer(server) if server else SystemResolver()


class SystemResolver:
    """getaddrinfo in its own threads: a slow name server must not delay other work."""

    def __init__(self) -> None:
        self._threads: CapacityLimiter | None = None

    async def addresses(self, name: str) -> list[Address]:
        if self._threads is None:
            self._threads = CapacityLimiter(LOOKUPS_AT_ONCE)
        try:
            found = await to_thread.run_sync(
                _looked_up, name, abandon_on_cancel=True, limiter=self._threads
            )
        except OSError as error:
            raise NameNotFound(f"{name}: {error.strerror or error}") from None
        return list(dict.fromkeys(ip_address(text.partition("%")[0]) for text in found))


def _looked_up(name: str) -> list[str]:
    # The final dot disables search lists; a name of one label may need them.
    absolute = name + "." if "." in name else name
    infos = socket.getaddrinfo(absolute, None, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


class NameServer:
    """Asks one name server, by UDP, and by TCP if the answer does not fit."""

    def __init__(self, server: str) -> None:
        host, port = server, 53
        if server.startswith("[") or server.count(":") == 1:
            host, _, number = server.rpartition(":")
            host, port = host.strip("[]"), int(number)
        address = literal(host)
        if address is None:
            raise ValueError(f"the resolver {server!r} is not an address")
        self._address, self._port = address, port

    async def addresses(self, name: str) -> list[Address]:
        replies = [await self._asked(name, kind) for kind in (dns.A, dns.AAAA)]
        found = [address for reply in replies for address in reply.addresses]
        if found:
            return found
        failed = {reply.code for reply in replies} - {dns.NOERROR, dns.NXDOMAIN}
        if failed:
            raise NameNotFound(f"{name}: the name server reports error {min(failed)}")
        raise NameNotFound(f"{name}: no such host")

    async def _asked(self, name: str, kind: int) -> dns.Reply:
        for _ in range(_TRIES):
            try:
                with anyio.fail_after(_TRY_S):
                    return await self._once(name, kind)
            except (TimeoutError, OSError, dns.DnsMalformed):
                continue
        raise NameNotFound(f"{name}: the name server does not answer")

    async def _once(self, name: str, kind: int) -> dns.Reply:
        number = secrets.randbelow(1 << 16)
        message = dns.query(number, name, kind)
        reply = dns.parse_reply(await self._by_udp(message), number, name, kind)
        if reply.truncated:
            reply = dns.parse_reply(await self._by_tcp(message), number, name, kind)
        return reply

    async def _by_udp(self, message: bytes) -> bytes:
        family = socket.AF_INET if self._address.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            # Connected: the kernel drops datagrams from other senders.
            sock.connect((str(self._address), self._port))
            sock.send(message)
            await anyio.wait_readable(sock)
            return sock.recv(dns.UDP_MAX)

    async def _by_tcp(self, message: bytes) -> bytes:
        sock = await connected(self._address, self._port)
        try:
            await send_all(sock, len(message).to_bytes(2, "big") + message)
            size = int.from_bytes(await receive_exactly(sock, 2), "big")
            return await receive_exactly(sock, size)
        finally:
            sock.close()
