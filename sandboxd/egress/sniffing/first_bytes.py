"""Classify the first bytes of a connection: TLS, HTTP, SSH or another protocol.

The decision is made on a whole first line or a whole TLS hello. Both have a maximum length; the
caller limits the time. `sni_check` compares the TLS server name with the connection's host, and
`http/host_check` the HTTP Host.
"""

from __future__ import annotations

from typing import Literal

import anyio

from sandboxd.egress.http.responses import GateRefused
from sandboxd.egress.sniffing import ssh_opening, tls_sni
from sandboxd.egress.sniffing.first_line import could_be_http, first_line
from sandboxd.egress.sniffing.sni_check import check_server_name
from sandboxd.egress.sockets import Inbound
from sandboxd.egress.target import Target
from sandboxd.traffic import GateRefusal

# The client sends first at these ports, so the gate connects only after the client named its host.
CLIENT_FIRST = frozenset({80, 443})
_TLS = bytes((tls_sni.HANDSHAKE, 3))  # every version's major number is 3

Protocol = Literal["tls", "http", "ssh", "other", "nothing"]


async def recognise(inbound: Inbound, target: Target, patience_s: float) -> Protocol:
    """The protocol of the first bytes, which stay in the buffer. Refused if they may not pass.

    `patience_s`: how long the first line may take once it has begun. A protocol of "other" may
    still turn into a request, so its bytes pass through a LineGuard.
    """
    if not inbound.buffer and not await inbound.more():
        return "nothing"
    with anyio.move_on_after(patience_s) as in_time:
        while len(inbound.buffer) < len(_TLS) and _TLS.startswith(bytes(inbound.buffer)):
            if not await inbound.more():
                break
        if inbound.buffer.startswith(_TLS):
            await check_server_name(inbound, target)
            return "tls"
        if target.port in CLIENT_FIRST:
            return await _web(inbound, target)
        while (is_http := could_be_http(inbound.buffer)) is None:
            if not await inbound.more():
                break
        return "http" if is_http else "other"
    assert in_time.cancelled_caught
    if target.port in CLIENT_FIRST or inbound.buffer.startswith(_TLS):
        raise _neither(target, f"its first line took longer than {patience_s:g} s")
    return "other"


async def _web(inbound: Inbound, target: Target) -> Protocol:
    """At the web's ports only protocols that can be parsed pass: TLS, HTTP/1 and SSH."""
    start = ssh_opening.PREFIX
    while first_line(inbound.buffer) is None:
        if not 32 <= inbound.buffer[0] <= 126:
            raise _neither(target, "what was sent is neither TLS nor HTTP")
        if not inbound.buffer.startswith(start[: len(inbound.buffer)]):
            break  # read_head waits for the rest
        if len(inbound.buffer) > ssh_opening.MAX_BANNER or not await inbound.more():
            break
    if not inbound.buffer.startswith(start):
        return "http"
    try:
        whole = ssh_opening.banner(inbound.buffer)
    except ssh_opening.SshMalformed:
        whole = None
    if whole is None:
        raise _neither(target, "what was sent is neither TLS nor HTTP nor SSH")
    return "ssh"


def _neither(target: Target, reason: str) -> GateRefused:
    return GateRefused(GateRefusal(target.host, target.port, reason, allow=()))
