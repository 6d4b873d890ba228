"""The packets of connections to addresses that no rule names: read, and answered with a reset."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from sandboxd.egress.unlisted import Listed, parse, parse_refusal
from sandboxd.policy.network.host_rules import parse_rule

ENDS = bytes((127, 0, 0, 1)) + b"\x5d\xb8\1\2"
IP = struct.pack("!BBHHHBBH", 0x45, 0, 40, 1, 0, 64, 6, 0) + ENDS


def tcp(flags: int, number: int = 0xFFFFFFFF) -> bytes:
    return struct.pack("!HHIIBBHHH", 40000, 443, number, 0, 5 << 4, flags, 100, 0, 0)


def test_an_attempt_is_read_and_its_reset_accepts_its_number() -> None:
    attempt = parse(IP + tcp(0x02))
    assert attempt is not None
    assert (str(attempt.target), attempt.port) == ("93.184.1.2", 443)
    reset = attempt.reset()
    assert reset[12:20] == IP[16:20] + IP[12:16]
    ports_and_numbers = struct.unpack_from("!HHII", reset, 20)
    assert ports_and_numbers == (443, 40000, 0, 0)  # 0xffffffff + 1
    assert reset[33] == 0x14
    words = struct.unpack("!16H", reset[12:20] + struct.pack("!HH", 6, 20) + reset[20:40])
    total = sum(words)
    assert (total & 0xFFFF) + (total >> 16) in (0xFFFF, 0x1FFFE)


def test_other_packets_are_none() -> None:
    for packet in (b"", IP, IP + tcp(0x12), IP + tcp(0x10), IP[:9] + b"\x11" + IP[10:] + tcp(2)):
        assert parse(packet) is None


def test_the_reset_of_a_closed_port_is_told_from_others() -> None:
    refused = parse_refusal(IP + tcp(0x14, number=0))
    assert refused == (IPv4Address("127.0.0.1"), 40000)
    for other in (tcp(0x14, number=7), tcp(0x04, number=0), tcp(0x02, number=0), b""):
        assert parse_refusal(IP + other) is None


@given(st.binary(max_size=80))
def test_no_packet_breaks_it(data: bytes) -> None:
    for packet in (data, IP + data, b"\x4f" + data):
        found = parse(packet)
        parse_refusal(packet)
        assert found is None or len(found.reset()) == 40


def test_listed_are_the_gates_own_and_what_a_rule_names() -> None:
    listed = Listed(map(parse_rule, ("example.org", "10.1.2.3:80", "[2001:db8::1]:80")))
    addresses = ("127.77.0.1", "127.80.3.1", "127.76.0.1", "10.1.2.3", "127.0.0.1", "10.1.2.4")
    assert [IPv4Address(a) in listed for a in addresses] == [True] * 4 + [False] * 2
    assert IPv4Address("127.0.0.1") in Listed([parse_rule("localhost:8080")])
