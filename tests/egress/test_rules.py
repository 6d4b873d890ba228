"""Verdicts, classes of addresses and the shapes of exfiltration, without any network."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from sandboxd.egress import exfil
from sandboxd.egress.address_book import MAX_ON_DEMAND, AddressBook, exact_addresses
from sandboxd.egress.listeners import socket_requests
from sandboxd.egress.rules import HostRules
from sandboxd.egress.special_addresses import NamedAddresses, special_class
from sandboxd.policy.network.host_rules import parse_rule


def _rules(*entries: str, exfil_rules: bool = True) -> HostRules:
    return HostRules(map(parse_rule, entries), exfil_rules=exfil_rules)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
     "168.63.129.16", "0.0.0.0", "224.0.0.1", "239.255.255.255", "255.255.255.255", "192.0.2.1",
     "240.0.0.1", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1",
     "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::10.0.0.1", "2002:7f00:1::", "64:ff9b::a00:1",
     "2001:db8::1", "2001:0:7f00:1::f5ff:fffe", "fec0::1", "feff::1", "0.1.2.3", "192.0.0.8",
     "192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.9", "192.31.196.1",
     "192.52.193.1", "192.175.48.1", "64:ff9b:1::808:808", "64:ff9b::7f00:1", "2002:808:808::1",
     "::8.8.8.8", "::ffff:0:10.0.0.1", "::ffff:0:8.8.8.8", "2001::1", "2001:2::1", "2001:10::1",
     "2001:20::1", "3fff::1", "5f00::1", "100::1", "4000::1", "2606:2800::5efe:10.0.0.1",
     "2606:2800::200:5efe:127.0.0.1", "fe80::5efe:8.8.8.8", "ff0e::1", "fd20:ce::254"],
)  # fmt: skip
def test_special_addresses_are_told_apart(address: str) -> None:
    assert special_class(ip_address(address)) is not None


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "8.8.8.8",
        "2606:2800:220:1::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2001:4860:4860::8888",
        "2a00:1450::1",
        "1.1.1.1",
        "100.63.255.255",
        "192.0.1.1",
    ],
)
def test_public_addresses_are_not_special(address: str) -> None:
    assert special_class(ip_address(address)) is None


def test_a_special_address_passes_when_it_or_its_network_is_named() -> None:
    named = NamedAddresses([parse_rule("10.1.2.3:80")], ["192.168.7.0/24"])
    assert named.refusal(ip_address("10.1.2.3"), 80) is None
    assert named.refusal(ip_address("192.168.7.9"), 7) is None
    assert named.refusal(ip_address("10.1.2.3"), 81) is not None
    assert named.refusal(ip_address("10.1.2.4"), 80) is not None
    assert named.refusal(ip_address("127.0.0.1"), 80) is not None
    home = NamedAddresses([parse_rule("localhost:80")], [])
    assert home.refusal(ip_address("127.0.0.1"), 80) is None
    assert home.refusal(ip_address("127.0.0.1"), 81) is not None


@pytest.mark.parametrize(
    ("host", "port", "kind"),
    [
        ("example.org", 443, "allow"),
        ("example.org", 8443, "ask"),
        ("a.wild.example", 443, "allow"),
        ("wild.example", 443, "ask"),
        ("other.example", 443, "ask"),
        ("gist.github.com", 443, "deny"),
        ("pastebin.com", 443, "allow"),
    ],
)
def test_verdicts(host: str, port: int, kind: str) -> None:
    rules = _rules("example.org", "*.wild.example", "*.github.com", "pastebin.com")
    assert rules.judge(host, port).kind == kind


def test_addresses_are_judged_only_as_listed() -> None:
    rules = _rules("example.org", "192.0.2.7:80")
    assert rules.judge_address(ip_address("192.0.2.7"), 80).kind == "allow"
    assert rules.judge_address(ip_address("192.0.2.7"), 81).kind == "ask"
    assert rules.judge_address(ip_address("192.0.2.8"), 80).kind == "deny"


@pytest.mark.parametrize(
    ("method", "target", "suspicious"),
    [
        ("GET", "/index.html?page=2", False),
        ("GET", "/a-path-of-many-words-joined-by-dashes", False),
        ("HEAD", "/" + "a/" * 48, True),
        ("GET", "/0123456789abcdef01234567", True),
        ("GET", "/?q=QUtJQUlPU0ZPRE5ON0VYQU1QTEU", True),
        ("GET", "/%51UtJQUlPU0ZPRE5ON0VYQU1QTEU=", True),
        ("POST", "/", True),
        ("PUT", "/", True),
        ("PATCH", "/", True),
    ],
)
def test_shapes(method: str, target: str, suspicious: bool) -> None:
    assert (exfil.shape(method, target) is not None) is suspicious
    kind = "exfil" if suspicious else "ask"
    assert _rules("example.org").judge_request("other.example", 80, method, target).kind == kind
    assert _rules("example.org").judge_request("example.org", 80, method, target).kind == "allow"
    off = _rules("example.org", exfil_rules=False)
    assert off.judge_request("other.example", 80, method, target).kind == "ask"


def test_addresses_in_the_sandbox_are_each_hosts_own_and_always_the_same() -> None:
    rules = [parse_rule(f"h{n}.example.org") for n in range(600)]
    addresses = exact_addresses(rules)
    assert len(set(addresses.values())) == 600
    assert all(address.is_loopback for address in addresses.values())
    assert exact_addresses(rules) == addresses


def test_names_on_demand_are_bounded_and_the_oldest_gives_way() -> None:
    book = AddressBook([parse_rule("*.example.org")])
    first = book.make("n0.example.org")
    for number in range(1, MAX_ON_DEMAND + 1):
        last = book.make(f"n{number}.example.org")
    assert last == first
    assert book.name_at(first) == f"n{MAX_ON_DEMAND}.example.org"
    assert book.address("n0.example.org") is None


def test_listeners_leave_room_for_the_programs_own_servers() -> None:
    made = socket_requests(
        map(parse_rule, ["a.example.org", "b.example.org:8080", "[2001:db8::7]:9000"])
    )
    places = {(str(w.address), w.port) for w in made if w.stream}
    assert ("0.0.0.0", 443) in places
    assert ("0.0.0.0", 8080) not in places
    assert {port for address, port in places if address == "127.77.0.2"} == {8080}
    assert ("2001:db8::7", 9000) in places
    assert all(address != "0.0.0.0" or port < 1024 for address, port in places)
