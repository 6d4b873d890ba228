"""DNS messages: queries of a sandbox, answers of a name server, and the responder's replies."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress

from fuzz.driver import Target

from sandboxd.egress.address_book import AddressBook
from sandboxd.egress.dns import wire as dns
from sandboxd.egress.dns.responder import DnsResponder
from sandboxd.egress.rules import HostRules
from sandboxd.policy.network.host_rules import parse_rule

RULES = [parse_rule("example.test"), parse_rule("*.wild.test")]


def seeds() -> Sequence[bytes]:
    names = ("example.test", "a.wild.test", "other.test", "1.0.77.127.in-addr.arpa", "localhost")
    queries = [dns.query(7, name, kind) for name in names for kind in (dns.A, dns.AAAA, dns.PTR)]
    question = dns.parse_question(dns.query(7, "a.test", dns.A))
    records = (
        dns.DnsRecord(dns.CNAME, dns.encode_name("b.test")),
        dns.DnsRecord(dns.A, bytes((93, 184, 216, 34))),
    )
    answers = [dns.answer(question, dns.NOERROR, records[1:]), dns.answer(question, dns.NXDOMAIN)]
    answers.append(dns.answer(question, dns.NOERROR, records))
    return [*queries, *answers, struct.pack("!HHHHHH", 7, 0x8180, 1, 9, 0, 0) + b"\1a\0\0\1\0\1"]


def check(data: bytes) -> None:
    with suppress(dns.DnsMalformed):
        reply = dns.parse_reply(data, 7, "a.test", dns.A)
        assert len(reply.addresses) * 16 <= len(data)
    with suppress(dns.DnsMalformed):
        question = dns.parse_question(data)
        assert len(question.name) <= 4 * 255
        again = dns.parse_question(struct.pack("!HHHHHH", 7, 256, 1, 0, 0, 0) + question.raw)
        assert (again.name, again.kind) == (question.name, question.kind)
    refused: list[str] = []
    answer = DnsResponder(HostRules(RULES), AddressBook(RULES), refused.append).reply(data)
    assert answer is None or len(answer) <= len(data) + 300
    if answer is not None:
        assert answer[:2] == data[:2]
        assert answer[2] & 0x80


TARGET = Target("dns", seeds, check, words=(b"\xc0\x0c", b"\x3f", b"\4test\0"))
