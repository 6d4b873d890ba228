"""The host and port of a connection, and the comparison of names with them. Pure."""

from __future__ import annotations

import msgspec

from sandboxd.policy.network.host_rules import HostInvalid, literal, normal_name


class Target(msgspec.Struct, frozen=True):
    """Where a connection goes: a name in normal form or the text of an address, and a port."""

    host: str
    port: int


# Programs take one for the other: a server on this machine answers to all of them.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def same_host(name: str, target: Target) -> bool:
    if not name.isascii():
        return False
    address = literal(name)
    try:
        host = str(address) if address is not None else normal_name(name)
    except HostInvalid:
        return False
    return host == target.host or (host in _LOOPBACK and target.host in _LOOPBACK)


def shown_host(name: str) -> str:
    """An untrusted name for display: in normal form, else as one printable word."""
    try:
        return normal_name(name)
    except HostInvalid:
        return "".join(
            c if c.isascii() and c.isprintable() and c != " " else "?" for c in name[:253]
        )
