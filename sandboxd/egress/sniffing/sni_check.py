"""Compare the TLS server name (SNI) with the connection's host.

`http/host_check` compares the Host of plain HTTP requests.
"""

from __future__ import annotations

from sandboxd.egress.http.responses import GateRefused
from sandboxd.egress.sniffing import tls_sni
from sandboxd.egress.sniffing.first_line import holds_version
from sandboxd.egress.sockets import Inbound
from sandboxd.egress.target import Target, same_host, shown_host
from sandboxd.traffic import GateRefusal


async def check_server_name(inbound: Inbound, target: Target) -> None:
    """Refused if the hello names another host, or cannot be parsed. Its bytes stay buffered."""
    reader = tls_sni.HelloReader()
    while True:
        try:
            hello = reader.read(inbound.buffer)
            break
        except tls_sni.HelloIncomplete:
            if len(inbound.buffer) > 2 * tls_sni.MAX_HELLO or not await inbound.more():
                raise _unreadable(target) from None
        except tls_sni.HelloMalformed:
            raise _unreadable(target) from None
    if holds_version(inbound.buffer):
        raise _unreadable(target)  # a server without TLS could parse a request in it
    if hello.server_name is not None and not same_host(hello.server_name, target):
        name = hello.server_name[:253]
        reason = f"the TLS server name is not the host of the connection ({target.host})"
        raise GateRefused(GateRefusal(shown_host(name), target.port, reason))


def _unreadable(target: Target) -> GateRefused:
    reason = "its TLS hello cannot be read"
    return GateRefused(GateRefusal(target.host, target.port, reason, allow=()))
