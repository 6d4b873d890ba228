"""Which sockets can be made: the gates on socket() and socketpair().

Families and protocols are compared, never addresses: those lie behind a pointer. What a socket of
an allowed family can reach is decided by the network namespace and Landlock.
"""

from __future__ import annotations

from errno import EAFNOSUPPORT, EPERM, EPROTONOSUPPORT

from sandboxd.linux.seccomp.rules import ArgumentMatch, ArgumentRule, int_is, int_outside
from sandboxd.linux.seccomp.spec import FilterSpec

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NAMED = frozenset({AF_UNIX, AF_INET, AF_INET6, AF_NETLINK})

NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT = 0, 4, 15

DOMAIN, TYPE, PROTOCOL = 0, 1, 2
TYPE_MASK = 0xF
SOCK_DGRAM, SOCK_RAW, SOCK_PACKET = 2, 3, 10

Refusal = tuple[int, tuple[ArgumentMatch, ...]]

REASON = (
    "vsock reaches the hypervisor and packet the wire past an empty network namespace; alg, can, "
    "bluetooth, tipc, rds, … are kernel code that no tool asks for and that exploits start from"
)
PAIR_REASON = (
    "a pair is private to its maker, except that an AF_UNIX datagram socket can be connected a "
    "second time, to any socket file of the host (SOCK_RAW becomes SOCK_DGRAM there)"
)


def socket_gates(spec: FilterSpec) -> tuple[ArgumentRule, ...]:
    return _socket(spec), _socketpair(spec)


def _kind(*kinds: int) -> ArgumentMatch:
    return ArgumentMatch(TYPE, TYPE_MASK, kinds)


def _socket(spec: FilterSpec) -> ArgumentRule:
    refuse = (*_unix(spec), *_inet(spec), *_netlink(spec), *_other_families(spec))
    return ArgumentRule("socket", REASON, refuse)


def _unix(spec: FilterSpec) -> list[Refusal]:
    # Landlock (ABI 7) does not cover connect() to a socket file: D-Bus, docker.sock, the agent.
    refused = spec.no_namespaces and not spec.refused_by_init
    return [(EPERM, (int_is(DOMAIN, AF_UNIX),))] if refused else []


def _inet(spec: FilterSpec) -> list[Refusal]:
    if spec.deny_inet:
        refused = (int_is(DOMAIN, AF_INET, AF_INET6),)
        return [] if spec.refused_by_init else [(EPERM, refused)]
    # The kernel turns (AF_INET, SOCK_PACKET) into AF_PACKET.
    return [(EPERM, (int_is(DOMAIN, AF_INET), _kind(SOCK_PACKET)))]


def _netlink(spec: FilterSpec) -> list[Refusal]:
    domain = int_is(DOMAIN, AF_NETLINK)
    if spec.deny_inet:
        return [(EAFNOSUPPORT, (domain,))]
    if spec.level == "inherit" and not spec.restrict_families:
        return []
    # getifaddrs and getaddrinfo speak ROUTE; on the host's network `ss` speaks SOCK_DIAG and
    # libusb listens to KOBJECT_UEVENT.
    protocols = {NETLINK_ROUTE}
    if not spec.restrict_families:
        protocols |= {NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT}
    return [(EPROTONOSUPPORT, (domain, int_outside(PROTOCOL, protocols)))]


def _other_families(spec: FilterSpec) -> list[Refusal]:
    if spec.level == "inherit" and not (spec.restrict_families or spec.deny_inet):
        return []
    return [(EAFNOSUPPORT, (int_outside(DOMAIN, NAMED),))]


def _socketpair(spec: FilterSpec) -> ArgumentRule:
    refuse: list[Refusal] = [(EPERM, (int_outside(DOMAIN, {AF_UNIX}),))]
    if spec.no_namespaces:
        refuse.append((EPERM, (_kind(SOCK_DGRAM, SOCK_RAW),)))
    return ArgumentRule("socketpair", PAIR_REASON, tuple(refuse))
