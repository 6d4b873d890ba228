"""Messages about connections: a denial only if the plan restricts the network and that host."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

import msgspec

from sandboxd.denials import remedies
from sandboxd.denials.context import Setting
from sandboxd.denials.text.command_line import CommandLine
from sandboxd.policy.display_names import named
from sandboxd.policy.network.embedded_ipv4 import embedded_ipv4
from sandboxd.policy.network.host_rules import DEFAULT_PORTS, literal, parse_rule
from sandboxd.policy.plan import NetworkRule
from sandboxd.traffic import GateRefusal
from sandboxd_proto.denial import Confidence, Denial, Evidence, Layer

_ICMP_PROGRAMS = frozenset(
    {"ping", "ping4", "ping6", "fping", "arping", "traceroute", "tracepath", "mtr"}
)
NETWORK_REASONS = ("lookup", "unreachable", "unconnected")

_IPV6 = r"(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}"
_NAME = rf"(?P<host>\[[0-9a-fA-F:.]+\]|{_IPV6}|[A-Za-z0-9_](?:[\w.-]*\w)?)"
_PORT = r"(?P<port>\d{1,5})"
_Q = r"['\"‘“`«„]?"
_NOT_A_HOST = frozenset(
    {"failed", "error", "for", "the", "host", "name", "address", "server", "on", "proxy"}
)
# How programs name the host, most specific first: a resolver's own address must not win. `True`:
# after this wording a name without a dot is a host as well.
_HOSTS = tuple(
    (plain, re.compile(pattern, re.IGNORECASE))
    for plain, pattern in (
        (True, rf"\blookup {_NAME}(?: on |:|,|$)"),  # Go
        (True, rf"\bgetaddrinfo E[A-Z_]+ {_NAME}(?::{_PORT})?"),  # libuv
        (True, rf"resolve host(?:name| address| name)?:? {_Q}{_NAME}"),  # curl, git, wget, ssh
        (True, rf"failure resolving {_Q}{_NAME}"),  # apt
        (True, rf"unknownhost(?:exception)?: {_NAME}"),  # Java
        (True, rf"host=['\"]{_NAME}['\"](?:, port={_PORT})?"),  # urllib3, pip
        (True, rf"bad (?:address|hostname) {_Q}{_NAME}"),  # busybox, perl
        (True, rf"/dev/(?:tcp|udp)/{_NAME}/{_PORT}"),  # bash
        (False, rf"resolve (?:address|name|proxy):? {_Q}{_NAME}{_Q}"),
        (True, rf"failed to resolve ['\"]{_NAME}['\"]"),  # urllib3
        (True, rf"connect to (?:host |server |address )?{_Q}{_NAME}{_Q},? (?:\S+ )?port:? {_PORT}"),
        (True, rf"connect(?:ion)? (?:to )?(?:E[A-Z]+ )?{_Q}{_NAME}:{_PORT}\b"),  # libuv, apt
        (True, rf"\bdial (?:tcp|udp)[46]? {_NAME}:{_PORT}"),  # Go
        (True, rf"connecting to {_NAME}(?:\|[\d.:a-f]+\|)?:{_PORT}"),  # wget
        (False, rf"\b[a-z][a-z0-9+]*://(?:[^\s/@'\"]*@)?{_NAME}(?::{_PORT})?"),
        (False, rf"\bconnect (?:E[A-Z]+ )?{_NAME}"),
        (False, rf"\b(?:ping|telnet|nc|ncat|traceroute|ftp): (?:connect to )?{_NAME}: "),
        (False, rf"\b(?:host|hostname|address) {_Q}{_NAME}{_Q} (?:not found|port)"),
    )
)


class HostPort(msgspec.Struct, frozen=True):
    host: str
    port: int | None = None


def judge(setting: Setting, reason: str, line: str) -> Denial | None:
    """The denial that `line` reports, when it names a host that the plan does not let through."""
    end = host_port(line)
    if end is None or not is_refused(setting, end):
        return None
    return denial(setting, end, operation=_operation(reason))


def host_port(line: str) -> HostPort | None:
    for plain, pattern in _HOSTS:
        for match in pattern.finditer(line):
            name = match["host"].strip("[]")
            if name.lower() in _NOT_A_HOST or not (plain or "." in name or ":" in name):
                continue
            if ":" in name and literal(name) is None:
                continue
            port = match.groupdict().get("port")
            number = int(port) if port else 0
            return HostPort(name, number if 0 < number < 65536 else None)
    return None


def is_refused(setting: Setting, end: HostPort) -> bool:
    """Whether the plan, and not the server, prevents the connection."""
    rule = setting.plan.sandbox.network
    if rule.kind == "inherit":
        return False
    if is_loopback(end.host):
        # The sandbox has a loopback of its own: only a service of the host is out of reach.
        return end.port is not None and setting.host.listens(end.port)
    return rule.kind == "deny" or not any(_covers(entry, end) for entry in rule.hosts)


def is_loopback(host: str) -> bool:
    if host.lower() in {"localhost", "ip6-localhost"} or host.lower().endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    # "Any address" is this machine for who connects to it.
    inner = embedded_ipv4(address) or address
    return inner.is_loopback or inner.is_unspecified


def is_gated(setting: Setting, host: str | None) -> bool:
    """Whether allowing the host would help: ICMP passes no gate."""
    if host is None:
        return True
    return host not in _pinged(setting.argv)


@lru_cache(maxsize=16)
def _pinged(argv: tuple[str, ...]) -> frozenset[str]:
    simple = CommandLine(argv).simple
    return frozenset(word for one in simple if one.program in _ICMP_PROGRAMS for word in one.words)


def denial(
    setting: Setting, end: HostPort | None, *, operation: str = "connect",
    evidence: Evidence = "policy", confidence: Confidence = "high", layer: Layer = "namespace",
    note: str = "",
) -> Denial:  # fmt: skip
    rule = setting.plan.sandbox.network
    host = end.host if end else None
    port = end.port if end else None
    aside = _why_no_host_helps(setting, host)
    where = named(_where(host, port)) if host else "the network"
    why = "the plan denies the network" if rule.kind == "deny" else _not_allowed(rule, end)
    return Denial(
        kind="network", operation=operation, target=host, layer=layer, evidence=evidence,
        confidence=confidence, message=f"{where} could not be reached: {note or why}{aside}",
        remedy=remedies.allow_hosts(rule, *_ends(host, port)) if not aside else None,
    )  # fmt: skip


def _where(host: str, port: int | None) -> str:
    if port is None:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _not_allowed(rule: NetworkRule, end: HostPort | None) -> str:
    """A host that is allowed at other ports is told apart from one that is not allowed."""
    entries = [e for e in rule.hosts if end and end.port and _covers_host(e, end.host)]
    if not entries:
        return "it is not an allowed host"
    if all(parse_rule(entry).ports == DEFAULT_PORTS for entry in entries):
        return "of this host only ports 80 and 443 are allowed"
    return f"of this host only {', '.join(entries)} is allowed"


def _ends(host: str | None, port: int | None) -> list[tuple[str, int | None]]:
    if host is None:
        return []
    # A server of this machine may listen at either address, and programs may mean both: the name
    # stands for both. At ::1 alone the gate listens only for that address.
    any_address = is_loopback(host) and host.strip("[]") != "::1"
    address = literal(host.strip("[]"))
    plain = address is None or str(address) == "127.0.0.1" or not address.is_loopback
    return [("localhost" if any_address and plain else host, port)]


def _why_no_host_helps(setting: Setting, host: str | None) -> str:
    """What to add to the message if allowing the host would not help."""
    if not is_gated(setting, host):
        return ". ICMP does not pass to allowed hosts either"
    if not setting.network_namespace and setting.platform == "linux":
        return ". The landlock backend cannot limit the network to named hosts; bubblewrap can"
    return ""


def gate_denial(setting: Setting, event: GateRefusal) -> Denial:
    """A refusal by the gate, which also knows what would allow it."""
    end = HostPort(event.host, event.port)
    made = denial(
        setting, end, operation=event.operation, evidence="gate", layer="gate", note=event.reason
    )
    if event.allow is None:
        return made
    rule = setting.plan.sandbox.network
    hosts = list(dict.fromkeys([*rule.hosts, *event.allow]))
    remedy = {"network": {"kind": "allow_hosts", "hosts": hosts}} if event.allow else None
    return msgspec.structs.replace(made, remedy=remedy)


def peer_denial(setting: Setting, path: str) -> Denial:
    """A socket file that the init did not connect to, because no process of the sandbox listens."""
    # A file that a program has left behind leads nowhere outside either.
    confidence: Confidence = "high" if setting.host.listens_at(path) else "low"
    return Denial(
        kind="network", operation="connect", target=path, layer="seccomp", evidence="kernel",
        confidence=confidence,
        message=f"the socket {named(path)} could not be connected to: a program outside the "
        "sandbox listens there, and the manifest does not name it",
        remedy=remedies.allow_read(setting, path) if confidence == "high" else None,
    )  # fmt: skip


def unix_denial() -> Denial:
    """A Unix socket that could not be made on the landlock backend."""
    return Denial(
        kind="network", operation="connect", target="AF_UNIX", layer="seccomp",
        evidence="kernel", confidence="medium", remedy=None,
        message="a Unix socket could not be made: the landlock backend has socket pairs only; on "
        "bubblewrap commands reach the sockets that the manifest names",
    )  # fmt: skip


def tool_denial(group: str) -> Denial:
    """Nothing named a host; the program asks those of its own configuration."""
    return Denial(
        kind="network", operation="connect", target=None, layer="namespace", evidence="policy",
        confidence="medium", remedy=None,
        message="the network could not be reached; the hosts that the program asks by its own "
        f"configuration are what `sandboxctl run --net group:{group}` allows",
    )  # fmt: skip


def _operation(reason: str) -> str:
    return "lookup" if reason == "lookup" else "connect"


def _covers_host(entry: str, host: str) -> bool:
    """At any port. The name of this machine and its IPv4 address stand for each other."""
    names = {host, "localhost", "127.0.0.1"} if is_loopback(host) else {host}
    return any(_covers(entry, HostPort(name)) for name in names)


def _covers(entry: str, end: HostPort) -> bool:
    rule = parse_rule(entry)
    if not rule.covers(end.host.lower().rstrip(".").strip("[]")):
        return False
    return end.port is None or rule.covers_port(end.port)
