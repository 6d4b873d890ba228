"""Which sockets a sandbox's network needs for its rules. Pure.

A port below 1024 has one listener for all addresses: no program in the sandbox can bind it. A port
above has one for each host's address, so that the program's own servers can bind 127.0.0.1.
Connections to addresses that no rule names are dropped by a filter on the same listeners; a raw
socket shows them, so that they are reported and reset.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address

from sandboxd.egress.address_book import PROXY, exact_addresses
from sandboxd.egress.dns import responder
from sandboxd.egress.proxy import variables as proxy_variables
from sandboxd.linux.netns.handed_sockets import SocketRequest
from sandboxd.policy.network.host_rules import HostRule

ANY = IPv4Address("0.0.0.0")
# The usual ports of programs that use literal addresses: attempts are answered and reported.
WATCHED = frozenset({22, 80, 443})
_PRIVILEGED = 1024


def needs_proxy(rules: Iterable[HostRule]) -> bool:
    return any(rule.wildcard or rule.has_range for rule in rules)


def socket_requests(rules: Iterable[HostRule]) -> list[SocketRequest]:
    rules = tuple(rules)
    for_all = {*WATCHED, responder.PORT, *_ports_for_all(rules)}
    made = [SocketRequest(ANY, responder.PORT, stream=False)]
    made.append(SocketRequest(ANY, socket.IPPROTO_TCP, stream=False, raw=True))
    made += [SocketRequest(ANY, port) for port in sorted(for_all)]
    if needs_proxy(rules) and proxy_variables.PORT not in for_all:
        made.append(SocketRequest(PROXY, proxy_variables.PORT))
    return list(dict.fromkeys([*made, *_own(rules, for_all)]))


def _ports_for_all(rules: tuple[HostRule, ...]) -> Iterator[int]:
    for rule in rules:
        for port in rule.single_ports:
            if rule.wildcard or (port < _PRIVILEGED and not _is_v6(rule)):
                yield port


def _own(rules: tuple[HostRule, ...], for_all: set[int]) -> Iterator[SocketRequest]:
    addresses = exact_addresses(rules)
    for rule in rules:
        if rule.wildcard:
            continue
        for port in rule.single_ports:
            if isinstance(rule.address, IPv6Address):
                yield SocketRequest(rule.address, port, add_address=not rule.address.is_loopback)
            elif port not in for_all:
                named = addresses.get(rule.name, IPv4Address("127.0.0.1"))
                yield SocketRequest(rule.address or named, port)


def _is_v6(rule: HostRule) -> bool:
    return isinstance(rule.address, IPv6Address)
