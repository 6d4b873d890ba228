"""Compare the host of a plain HTTP request (Host, absolute target) with the connection's host.

`sni_check` compares the TLS server name (SNI).
"""

from __future__ import annotations

from sandboxd.egress.http.head import HeadMalformed, RequestHead, split_authority
from sandboxd.egress.http.relay import Rewrite, is_last
from sandboxd.egress.http.responses import GateRefused
from sandboxd.egress.http.upgrade import wants_upgrade
from sandboxd.egress.target import Target, same_host, shown_host
from sandboxd.traffic import GateRefusal

# These fields can switch to another protocol, in which other hosts can be named.
UPGRADE = frozenset({"upgrade", "connection", "http2-settings"})
CONNECTION = UPGRADE | {"keep-alive", "proxy-connection"}


def refused_head(error: HeadMalformed, target: Target) -> GateRefused:
    return GateRefused(GateRefusal(target.host, target.port, str(error), allow=()), error.status)


def transparent_rewrite(target: Target) -> Rewrite:
    """Every request must be for the host whose address was connected to."""

    def rewrite(head: RequestHead, first: bool) -> bytes:
        try:
            named = _named_hosts(head)
        except HeadMalformed as error:
            raise refused_head(error, target) from None
        for name, port in named:
            if not same_host(name, target) or port not in (None, target.port):
                reason = f"the request names another host than the connection ({target.host})"
                raise GateRefused(GateRefusal(shown_host(name), port or target.port, reason))
        path = unambiguous_path(head.target, target)
        if is_last(head):
            return head.rendered(path, CONNECTION, (("Connection", "close"),))
        if head.tokens("upgrade") and not (first and wants_upgrade(head)):
            return head.rendered(path, UPGRADE)
        return head.raw if path == head.target else head.rendered(path, frozenset())

    return rewrite


def host_field(target: Target) -> str:
    """The value of Host for this target."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port == 80 else f"{host}:{target.port}"


def unambiguous_path(path: str, target: Target) -> str:
    """Some servers take `//name/` at the beginning for a host. A whole URL has only one."""
    return f"http://{host_field(target)}{path}" if path.startswith("//") else path


def _named_hosts(head: RequestHead) -> list[tuple[str, int | None]]:
    if head.method.upper() == "CONNECT":
        raise HeadMalformed("CONNECT is for proxies")
    hosts = [split_authority(value) for value in head.all("host")]
    if len(hosts) > 1 or (not hosts and head.minor == 1):
        raise HeadMalformed("the request has not exactly one Host")
    if head.target.startswith("/") or (head.target == "*" and head.method == "OPTIONS"):
        return hosts
    return [*hosts, split_authority(absolute_target(head)[0])]


def absolute_target(head: RequestHead) -> tuple[str, str]:
    """(authority, path and query) of a target that is a whole URL of plain HTTP."""
    scheme, separator, rest = head.target.partition("://")
    if not separator or scheme.lower() != "http":
        raise HeadMalformed("the request's target is neither a path nor an http URL")
    end = min((i for i in map(rest.find, "/?#") if i >= 0), default=len(rest))
    authority, path = rest[:end], rest[end:].partition("#")[0]
    if "@" in authority:
        raise HeadMalformed("the request's target has a user in it")
    return authority, path if path.startswith("/") else "/" + path
