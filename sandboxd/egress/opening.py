"""The first bytes of a connection: what they are, and whether they name the host they go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sandboxd.egress import client_hello
from sandboxd.egress.http_head import looks_like_http
from sandboxd.egress.refused import Refused
from sandboxd.egress.streams import Inbound
from sandboxd.policy.hosts import HostInvalid, literal, normal_name
from sandboxd.traffic import Refusal

# The client speaks first here, so nothing is connected before it has said whom it wants.
CLIENT_FIRST = frozenset({80, 443})
_TLS = bytes((client_hello.HANDSHAKE, 3))  # every version's major number is 3
_SSH = b"SSH-"
_HTTP2 = b"PRI * HTTP/2.0"

Protocol = Literal["tls", "http", "other", "nothing"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a connection goes: a name in normal form or the text of an address, and a port."""

    host: str
    port: int


async def recognised(inbound: Inbound, target: Target) -> Protocol:
    """Reads as little as possible and leaves it in the buffer. Refused for what may not pass."""
    if not inbound.buffer and not await inbound.more():
        return "nothing"
    while len(inbound.buffer) < len(_TLS) and _TLS.startswith(bytes(inbound.buffer)):
        if not await inbound.more():
            break
    if inbound.buffer.startswith(_TLS):
        await _check_hello(inbound, target)
        return "tls"
    if target.port in CLIENT_FIRST:
        return await _web(inbound, target)
    while (is_http := looks_like_http(inbound.buffer)) is None:
        if not await inbound.more():
            break
    return "http" if is_http and not inbound.buffer.startswith(_HTTP2) else "other"


async def _web(inbound: Inbound, target: Target) -> Protocol:
    """At the web's ports nothing passes that is not understood, but for ssh."""
    while len(inbound.buffer) < len(_SSH) and _SSH.startswith(bytes(inbound.buffer)):
        if not await inbound.more():
            break
    if inbound.buffer.startswith(_SSH):
        return "other"
    if inbound.buffer[0] < 32 or inbound.buffer[0] > 126:
        raise Refused(
            Refusal(target.host, target.port, "what was sent is neither TLS nor HTTP", allow=())
        )
    return "http"


async def _check_hello(inbound: Inbound, target: Target) -> None:
    while True:
        try:
            hello = client_hello.parse(inbound.buffer)
            break
        except client_hello.HelloIncomplete:
            if len(inbound.buffer) > 2 * client_hello.MAX_HELLO or not await inbound.more():
                raise _unreadable(target) from None
        except client_hello.HelloMalformed:
            raise _unreadable(target) from None
    if hello.server_name is not None and not same_host(hello.server_name, target):
        name = hello.server_name[:253]
        reason = f"the TLS server name is another than that of the connection ({target.host})"
        raise Refused(Refusal(shown_host(name), target.port, reason))


def _unreadable(target: Target) -> Refused:
    return Refused(Refusal(target.host, target.port, "its TLS hello cannot be read", allow=()))


def same_host(name: str, target: Target) -> bool:
    address = literal(name)
    if address is not None:
        return str(address) == target.host
    try:
        return normal_name(name) == target.host
    except HostInvalid:
        return False


def shown_host(name: str) -> str:
    """A name from outside, fit to be shown: in normal form, else without what is not printable."""
    try:
        return normal_name(name)
    except HostInvalid:
        return "".join(c if c.isascii() and c.isprintable() else "?" for c in name[:253])
