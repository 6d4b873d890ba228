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
TYPE_BITS = 4
TYPE_MASK = (1 << TYPE_BITS) - 1
SOCK_DGRAM, SOCK_RAW, SOCK_PACKET = 2, 3, 10

Case = tuple[ArgumentMatch, ...]
Refusal = tuple[int, Case]

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


def _kind(kind: int) -> ArgumentMatch:
    return ArgumentMatch(TYPE, TYPE_MASK, kind)


def _socket(spec: FilterSpec) -> ArgumentRule:
    refuse: list[Refusal] = []
    allow: list[Case] = []
    for refused, cases in (
        _unix(spec),
        _inet(spec, AF_INET),
        _inet(spec, AF_INET6),
        _netlink(spec),
        _other_families(spec),
    ):
        refuse += refused
        allow += cases
    return ArgumentRule("socket", REASON, tuple(refuse), tuple(allow))


def _unix(spec: FilterSpec) -> tuple[list[Refusal], list[Case]]:
    unix = (int_is(DOMAIN, AF_UNIX),)
    # Landlock (ABI 7) does not cover connect() to a socket file: D-Bus, docker.sock, the agent.
    refused = spec.no_namespaces and not spec.refused_by_init
    return ([(EPERM, unix)], []) if refused else ([], [unix])


def _inet(spec: FilterSpec, family: int) -> tuple[list[Refusal], list[Case]]:
    domain = int_is(DOMAIN, family)
    if spec.deny_inet:
        return ([], [(domain,)]) if spec.refused_by_init else ([(EPERM, (domain,))], [])
    if family != AF_INET:
        return [], [(domain,)]
    # The kernel turns (AF_INET, SOCK_PACKET) into AF_PACKET.
    others = [(domain, match) for match in int_outside(TYPE, {SOCK_PACKET}, bits=TYPE_BITS)]
    return [(EPERM, (domain, _kind(SOCK_PACKET)))], list(others)


def _netlink(spec: FilterSpec) -> tuple[list[Refusal], list[Case]]:
    domain = int_is(DOMAIN, AF_NETLINK)
    if spec.deny_inet:
        return [(EAFNOSUPPORT, (domain,))], []
    if spec.level == "inherit" and not spec.restrict_families:
        return [], [(domain,)]
    # getifaddrs and getaddrinfo speak ROUTE; on the host's network `ss` speaks SOCK_DIAG and
    # libusb listens to KOBJECT_UEVENT.
    protocols = {NETLINK_ROUTE}
    if not spec.restrict_families:
        protocols |= {NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT}
    refused = [(EPROTONOSUPPORT, (domain, match)) for match in int_outside(PROTOCOL, protocols)]
    allowed = [(domain, int_is(PROTOCOL, protocol)) for protocol in sorted(protocols)]
    return list(refused), list(allowed)


def _other_families(spec: FilterSpec) -> tuple[list[Refusal], list[Case]]:
    others = [(match,) for match in int_outside(DOMAIN, NAMED)]
    if spec.level == "inherit" and not (spec.restrict_families or spec.deny_inet):
        return [], list(others)
    return [(EAFNOSUPPORT, match) for match in others], []


def _socketpair(spec: FilterSpec) -> ArgumentRule:
    unix = int_is(DOMAIN, AF_UNIX)
    refuse: list[Refusal] = [(EPERM, (match,)) for match in int_outside(DOMAIN, {AF_UNIX})]
    allow: list[Case] = [(unix,)]
    if spec.no_namespaces:
        # Whatever the family: libseccomp 2.5 miscompiles the refusal of a pair (family, kind)
        # beside refusals of families. The accumulator holds the kind where it compares families.
        kinds = (SOCK_DGRAM, SOCK_RAW)
        refuse += [(EPERM, (_kind(kind),)) for kind in kinds]
        allow = [(unix, match) for match in int_outside(TYPE, kinds, bits=TYPE_BITS)]
    return ArgumentRule("socketpair", PAIR_REASON, tuple(refuse), tuple(allow))
