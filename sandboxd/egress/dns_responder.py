"""The name server of a sandbox: allowed names have an address in there, no other name exists.

No query leaves the machine: names cannot carry data out, and a name is resolved for real only when
a connection to it is made.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Any

import anyio

from sandboxd.egress import dns_wire as dns
from sandboxd.egress.book import AddressBook
from sandboxd.egress.streams import Inbound, send_all
from sandboxd.egress.verdicts import HostRules

PORT = 53
_TURN = 64  # datagrams in one go
_PAUSE_S = 0.01
_TCP_IDLE_S = 10.0
_TTL_S, _TTL_ON_DEMAND_S = 60, 5
_REVERSE = ".in-addr.arpa"
_IP_PKTINFO = 8
_PKTINFO = struct.Struct("=i4s4s")


class DnsResponder:
    """`refused` is told of every name that does not exist here."""

    def __init__(
        self, rules: HostRules, book: AddressBook, refused: Callable[[str], None]
    ) -> None:
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
        if not self._rules.knows(name):
            self._refused(name or ".")
            return dns.answer(question, dns.NXDOMAIN)
        exact = self._book.address(name)
        ttl_s = _TTL_ON_DEMAND_S if exact is None else _TTL_S
        return self._addressed(question, self._book.make(name), ttl_s)

    def _addressed(self, question: dns.Question, address: IPv4Address, ttl_s: int) -> bytes:
        if question.kind not in (dns.A, dns.ANY):
            return dns.answer(question, dns.NOERROR)
        return dns.answer(question, dns.NOERROR, (dns.Record(dns.A, address.packed, ttl_s),))

    def _named(self, question: dns.Question) -> bytes:
        labels = question.name.removesuffix(_REVERSE).split(".")
        try:
            name = self._book.name_at(IPv4Address(".".join(reversed(labels))))
        except ValueError:
            name = None
        if name is None or question.kind not in (dns.PTR, dns.ANY):
            return dns.answer(question, dns.NXDOMAIN)
        return dns.answer(question, dns.NOERROR, (dns.Record(dns.PTR, dns.encode_name(name)),))

    async def serve_udp(self, sock: socket.socket) -> None:
        while True:
            await anyio.wait_readable(sock)
            for _ in range(_TURN):
                try:
                    message, control, _, sender = sock.recvmsg(dns.UDP_MAX, 64)
                except BlockingIOError:
                    break
                except OSError:
                    continue  # an answer that nobody waited for
                reply = self.reply(message)
                if reply is not None:
                    _send(sock, reply, control, sender)
            else:
                # More than anybody asks in earnest: the daemon has others to serve.
                await anyio.sleep(_PAUSE_S)

    async def serve_tcp(self, inbound: Inbound) -> None:
        while True:
            with anyio.move_on_after(_TCP_IDLE_S) as in_time:
                message = await _message(inbound)
            if in_time.cancelled_caught or message is None:
                return
            reply = self.reply(message)
            if reply is None:
                return
            await send_all(inbound.sock, len(reply).to_bytes(2, "big") + reply)


def _send(
    sock: socket.socket, reply: bytes, control: list[tuple[int, int, bytes]], sender: Any
) -> None:
    """From the address that was asked: a client drops an answer from any other."""
    rights: list[tuple[int, int, bytes]] = []
    for level, kind, data in control:
        if level == socket.IPPROTO_IP and kind == _IP_PKTINFO and len(data) >= _PKTINFO.size:
            _, _, asked = _PKTINFO.unpack_from(data)
            rights = [(level, kind, _PKTINFO.pack(0, asked, b"\0" * 4))]
    with suppress(OSError):  # it asks again
        sock.sendmsg([reply], rights, 0, sender)


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
