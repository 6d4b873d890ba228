"""Which hosts a manifest names: the spelling of an entry, its normal form, and what it covers.

`example.org`, `example.org:8443`, `example.org:8000-8100`, `*.example.org`, `192.0.2.7:5432`,
`[2001:db8::7]:443`. Without ports 80 and 443 are meant. Names are compared in their ASCII form, in
lower case and without the final dot, so that one host has one spelling everywhere.
"""

from __future__ import annotations

import ipaddress
import re

import idna
import msgspec

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
PortRange = tuple[int, int]

DEFAULT_PORTS: tuple[PortRange, ...] = ((80, 80), (443, 443))
MAX_ENTRY = 512
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
# getaddrinfo takes "127.1", "0x7f000001" and "2130706433" for addresses.
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?\Z")


class HostInvalid(ValueError):
    """An entry or a name that cannot be a host; the text says why."""


class HostRule(msgspec.Struct, frozen=True):
    """One entry. `name` is in normal form; of a wildcard it is what follows the `*.`."""

    name: str
    wildcard: bool = False
    ports: tuple[PortRange, ...] = DEFAULT_PORTS
    address: Address | None = None

    @property
    def text(self) -> str:
        """The entry again, in normal form."""
        name = f"*.{self.name}" if self.wildcard else self.name
        if self.ports == DEFAULT_PORTS:
            return name
        low, high = self.ports[0]
        literal = f"[{name}]" if ":" in name else name
        return f"{literal}:{low}" if low == high else f"{literal}:{low}-{high}"

    @property
    def single_ports(self) -> tuple[int, ...]:
        """The ports that can have a listener each; a range cannot."""
        return tuple(low for low, high in self.ports if low == high)

    @property
    def has_range(self) -> bool:
        return any(low != high for low, high in self.ports)

    def covers(self, name: str) -> bool:
        return name.endswith("." + self.name) if self.wildcard else name == self.name

    def covers_port(self, port: int) -> bool:
        return any(low <= port <= high for low, high in self.ports)

    def includes(self, other: HostRule) -> bool:
        """Whether everything that `other` allows is allowed by this one."""
        same = self.name == other.name and self.wildcard == other.wildcard
        named = same or (self.wildcard and self.covers(other.name) and other.address is None)
        return named and all(
            any(low <= first and last <= high for low, high in self.ports)
            for first, last in other.ports
        )


def parse_rule(entry: str) -> HostRule:
    """HostInvalid if the entry is no host."""
    if len(entry) > MAX_ENTRY:
        raise HostInvalid("it is too long for a host")
    if "/" in entry and not entry.strip("0123456789abcdefABCDEF.:/"):
        raise HostInvalid("a range of addresses cannot be allowed: name each address")
    if "/" in entry or "@" in entry:
        raise HostInvalid("it is not a host: leave scheme, user and path away")
    host, ports = _split(entry)
    if host.startswith("*."):
        return HostRule(_wildcard_suffix(host[2:]), wildcard=True, ports=ports)
    if "*" in host:
        raise HostInvalid("`*` stands only at the beginning, as in *.example.org")
    address = literal(host)
    if address is not None:
        return HostRule(str(address), ports=ports, address=address)
    return HostRule(normal_name(host), ports=ports)


def _wildcard_suffix(text: str) -> str:
    name = normal_name(text)
    if "." not in name:
        raise HostInvalid(f"`*.{name}` is a whole top level: name at least two labels")
    return name


def _split(entry: str) -> tuple[str, tuple[PortRange, ...]]:
    if entry.startswith("["):
        host, bracket, rest = entry[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise HostInvalid("an IPv6 address with a port is written [2001:db8::7]:443")
        return host, _ports(rest[1:]) if rest else DEFAULT_PORTS
    if entry.count(":") > 1:
        return entry, DEFAULT_PORTS
    host, colon, ports = entry.partition(":")
    return host, _ports(ports) if colon else DEFAULT_PORTS


def _ports(text: str) -> tuple[PortRange, ...]:
    match = _PORTS.match(text)
    if match is None:
        raise HostInvalid(f"{text!r} is neither a port nor a range of ports")
    low = int(match[1])
    high = int(match[2]) if match[2] else low
    if not 0 < low <= high <= 65535:
        raise HostInvalid(f"ports are 1 to 65535, not {text}")
    return ((low, high),)


def literal(host: str) -> Address | None:
    """The address that `host` spells in the one unambiguous form, else None."""
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None


def normal_name(name: str) -> str:
    """A host name in normal form. HostInvalid for what is none, and for addresses in disguise."""
    text = name.lower() if name.isascii() else _ascii(name)
    text = text.removesuffix(".")
    labels = text.split(".")
    if not text or len(text) > 253 or not all(map(_LABEL.match, labels)):
        raise HostInvalid(f"{name[:80]!r} is not a host name")
    if _NUMBER.match(labels[-1]):
        raise HostInvalid(f"{name[:80]!r} is not a host name: it ends in a number")
    return text


def _ascii(name: str) -> str:
    try:
        return idna.encode(name, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise HostInvalid(f"{name[:80]!r} is not an internationalised host name") from None
