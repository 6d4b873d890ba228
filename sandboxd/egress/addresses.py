"""Which addresses a name may lead to: public ones, and those that somebody named.

A name says nothing about where it leads: whoever owns it can point it at this machine, at its
network or at a cloud's metadata service, and change that at any time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from sandboxd.policy.hosts import Address, HostRule

Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]

# Metadata services that no class below covers: they look public or are in a class of their own.
_METADATA = frozenset(
    map(ipaddress.ip_address, ("168.63.129.16", "169.254.169.254", "100.100.100.200",
                               "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)  # fmt: skip
_CGNAT = ipaddress.IPv4Network("100.64.0.0/10")
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_ULA = ipaddress.IPv6Network("fc00::/7")
LOCALHOST = tuple(map(ipaddress.ip_address, ("127.0.0.1", "::1")))


def special_class(address: Address) -> str | None:
    """Why `address` is not simply a public host; None when it is."""
    if address in _METADATA:
        return "a cloud's metadata service"
    if isinstance(address, ipaddress.IPv6Address):
        inner = _embedded(address)
        if inner is not None:
            return special_class(inner)
        if address in _ULA:
            return "a unique local address"
    elif address in _CGNAT:
        return "a carrier's private address"
    for is_so, what in (
        (address.is_unspecified, "the unspecified address"),
        (address.is_loopback, "this machine's loopback"),
        (address.is_link_local, "a link-local address"),
        (address.is_multicast, "a multicast address"),
        (address.is_private, "a private address"),
        (not address.is_global or address.is_reserved, "a reserved address"),
    ):
        if is_so:
            return what
    return None


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that routers or the kernel would take out of an IPv6 one."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _NAT64):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _COMPATIBLE and int(address) > 1:
        return ipaddress.IPv4Address(int(address))
    return None


class NamedAddresses:
    """The special addresses that may be connected to, because manifest or config name them."""

    def __init__(self, rules: Iterable[HostRule], networks: Iterable[str]) -> None:
        rules = tuple(rules)
        named = {rule.address for rule in rules if rule.address is not None}
        if any(rule.name == "localhost" for rule in rules):
            named.update(LOCALHOST)
        self._named = frozenset(named)
        self._networks: Networks = tuple(map(ipaddress.ip_network, networks))

    def refusal(self, address: Address) -> str | None:
        """Why `address` may not be connected to; None when it may."""
        what = special_class(address)
        if what is None or address in self._named:
            return None
        if any(address in network for network in self._networks):
            return None
        return what
