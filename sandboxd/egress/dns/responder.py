"""The name server of a sandbox: allowed names have an address, no other name exists.

No query leaves the machine, so names cannot carry data out. The gate resolves a name only when a
command connects to it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address

import anyio

from sandboxd.egress.address_book import AddressBook
from sandboxd.egress.dns import wire as dns
from sandboxd.egress.rules import HostRules
from sandboxd.egress.sockets import Inbound, Turn, send_all
from sandboxd.policy.network.host_rules import HostInvalid, normal_name
from sandboxd.posix import datagrams

PORT = 53
_TURN = 64  # datagrams per turn of the event loop
_PAUSE_S = 0.01
_TCP_IDLE_S = 10.0
_TTL_S, _TTL_ON_DEMAND_S = 60, 5
_REVERSE = ".in-addr.arpa"


class DnsResponder:
    """`refused` is told of every name that does not exist here; `may_ask` says whether a name that
    no rule knows gets an address, because an approver decides when it is connected to."""

    def __init__(
        self, rules: HostRules, book: AddressBook, refused: Callable[[str], None],
        may_ask: Callable[[str], bool] = lambda name: False,
    ) -> None:  # fmt: skip
        self._may_ask = may_ask
        self._rules = rules
        self._book = book
        self._refused = refused

    def reply(self, message: bytes) -> bytes | None:
        try:
            question = dns.parse_question(message)
        except dns.DnsMalformed:
            return dns.refusal_of(message)
        name = question.name
        if name == "localhost" or name.endswith(".localhost"):
            return self._addressed(question, IPv4Address("127.0.0.1"), _TTL_S)
        if name.endswith((".in-addr.arpa", ".ip6.arpa")):
            return self._named(question)
        if not _is_host(name) or not (self._rules.knows(name) or self._may_ask(name)):
            self._refused(name or ".")
            return dns.answer(question, dns.NXDOMAIN)
        exact = self._book.address(name)
        ttl_s = _TTL_ON_DEMAND_S if exact is None else _TTL_S
        return self._addressed(question, self._book.make(name), ttl_s)

    def _addressed(self, question: dns.DnsQuestion, address: IPv4Address, ttl_s: int) -> bytes:
        if question.kind not in (dns.A, dns.ANY):
            return dns.answer(question, dns.NOERROR)
        return dns.answer(question, dns.NOERROR, (dns.DnsRecord(dns.A, address.packed, ttl_s),))

    def _named(self, question: dns.DnsQuestion) -> bytes:
        labels = question.name.removesuffix(_REVERSE).split(".")
        try:
            name = self._book.name_at(IPv4Address(".".join(reversed(labels))))
        except ValueError:
            name = None
        if name is None or question.kind not in (dns.PTR, dns.ANY):
            return dns.answer(question, dns.NXDOMAIN)
        return dns.answer(question, dns.NOERROR, (dns.DnsRecord(dns.PTR, dns.encode_name(name)),))

    async def serve_udp(self, sock: socket.socket) -> None:
        while True:
            await anyio.wait_readable(sock)
            for _ in range(_TURN):
                try:
                    query = datagrams.receive(sock, dns.UDP_MAX)
                except BlockingIOError:
                    break
                except OSError:
                    continue  # the client did not wait for the answer
                reply = self.reply(query.data)
                if reply is not None:
                    with suppress(OSError):  # the client asks again
                        datagrams.answer(sock, query, reply)
            else:
                # Programs make far fewer queries; the limit leaves time for other clients.
                await anyio.sleep(_PAUSE_S)

    async def serve_tcp(self, inbound: Inbound) -> None:
        turn = Turn()
        while True:
            await turn.step()
            with anyio.move_on_after(_TCP_IDLE_S) as in_time:
                message = await _message(inbound)
            if in_time.cancelled_caught or message is None:
                return
            reply = self.reply(message)
            if reply is None:
                return
            await send_all(inbound.sock, len(reply).to_bytes(2, "big") + reply)


def _is_host(name: str) -> bool:
    """Whether it is the name of a host in normal form. A query may hold any bytes as a name."""
    try:
        return normal_name(name) == name
    except HostInvalid:
        return False


async def _message(inbound: Inbound) -> bytes | None:
    while True:
        size = int.from_bytes(inbound.buffer[:2], "big")
        if len(inbound.buffer) >= 2 and size > dns.UDP_MAX:
            return None
        if len(inbound.buffer) >= 2 + size and len(inbound.buffer) >= 2:
            inbound.taken(2)
            return inbound.taken(size)
        if not await inbound.more():
            return None
