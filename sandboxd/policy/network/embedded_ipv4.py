"""IPv4 addresses inside of IPv6 ones: another spelling of the same host. Pure."""

from __future__ import annotations

import ipaddress

from sandboxd.policy.network.host_rules import Address

NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})


def embedded_ipv4(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address in an IPv6 one (mapped, 6to4, Teredo, NAT64, …), if any."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in NAT64 or address in _TRANSLATED or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return last
    return last if address in _COMPATIBLE and int(address) > 1 else None
