"""Which addresses an allowed name may resolve to: public ones, and those that are named.

The owner of a name can point it at this machine, at its network or at a cloud's metadata service,
and change that at any time.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from sandboxd.policy.data import metadata_services
from sandboxd.policy.network.embedded_ipv4 import NAT64, embedded_ipv4
from sandboxd.policy.network.host_rules import Address, HostRule

Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]

LOCALHOST = tuple(map(ipaddress.ip_address, ("127.0.0.1", "::1")))
_DOCUMENTATION, _RESERVED = "an address for documentation", "a reserved address"
_PRIVATE, _TUNNEL = "a private address", "an address of a tunnel"
_PROTOCOLS = "an address of the Internet's own protocols"
# The special-purpose registries of IANA. Not left to `ipaddress`, whose lists differ by version.
_SPECIAL_V4 = tuple(
    (ipaddress.IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/32", "the unspecified address"), ("0.0.0.0/8", _RESERVED),
        ("10.0.0.0/8", _PRIVATE), ("100.64.0.0/10", "a carrier's private address"),
        ("127.0.0.0/8", "this machine's loopback"), ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", _PRIVATE), ("192.0.0.0/24", _PROTOCOLS),
        ("192.0.2.0/24", _DOCUMENTATION), ("192.31.196.0/24", _PROTOCOLS),
        ("192.52.193.0/24", _PROTOCOLS), ("192.88.99.0/24", _TUNNEL),
        ("192.168.0.0/16", _PRIVATE), ("192.175.48.0/24", _PROTOCOLS),
        ("198.18.0.0/15", "an address for benchmarks"), ("198.51.100.0/24", _DOCUMENTATION),
        ("203.0.113.0/24", _DOCUMENTATION), ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", _RESERVED),
    )
)  # fmt: skip
_SPECIAL_V6 = tuple(
    (ipaddress.IPv6Network(network), what)
    for network, what in (
        ("::/128", "the unspecified address"), ("::1/128", "this machine's loopback"),
        ("64:ff9b:1::/48", _TUNNEL), ("fc00::/7", "a unique local address"),
        ("fe80::/10", "a link-local address"), ("fec0::/10", "a site-local address"),
        ("ff00::/8", "a multicast address"), ("2001::/23", _PROTOCOLS),
        ("2001:db8::/32", _DOCUMENTATION), ("2002::/16", _TUNNEL), ("3fff::/20", _DOCUMENTATION),
        ("2620:4f:8000::/48", _PROTOCOLS),
    )
)  # fmt: skip
_ANY_PORT = 9
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")  # global unicast


def special_class(address: Address) -> str | None:
    """Why `address` is not a public host; None if it is."""
    if address in metadata_services.ADDRESSES:
        return "a cloud's metadata service"
    if isinstance(address, ipaddress.IPv4Address):
        return next((what for network, what in _SPECIAL_V4 if address in network), None)
    inner = embedded_ipv4(address)
    if inner is not None and (found := special_class(inner)) is not None:
        return found
    for network, what in _SPECIAL_V6:
        if address in network:
            return what
    if address.ipv4_mapped is not None or address in NAT64 or address in _GLOBAL_V6:
        return None
    return _RESERVED


def is_own(address: Address) -> bool:
    """Whether it is an address of this machine, where services may listen that no other machine
    can reach. The kernel is asked for a route; nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.connect((str(address), _ANY_PORT))
            return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]) == address
    except OSError:
        return False


class NamedAddresses:
    """The special addresses that may be connected to, because manifest or config name them.

    An address that the manifest names at one port is not open to other hosts' names at others.
    """

    def __init__(self, rules: Iterable[HostRule], networks: Iterable[str]) -> None:
        self._rules = [r for r in rules if r.address is not None or r.name == "localhost"]
        self._networks: Networks = tuple(map(ipaddress.ip_network, networks))

    def refusal(self, address: Address, port: int) -> str | None:
        """Why `address` may not be connected to at `port`; None when it may."""
        if any(_names(rule, address, port) for rule in self._rules):
            return None
        if any(address in network for network in self._networks):
            return None
        return special_class(address) or ("an address of this machine" if is_own(address) else None)


def _names(rule: HostRule, address: Address, port: int) -> bool:
    addresses = LOCALHOST if rule.address is None else (rule.address,)
    return address in addresses and rule.covers_port(port)
