"""One connection of a sandbox, from its first byte to its end.

The order matters: everything that can be refused is refused first, then the gate connects to the
real host, then bytes flow.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import msgspec

from sandboxd.egress.dial import Dialer, Unreachable
from sandboxd.egress.http.head import HeadMalformed, RequestHead
from sandboxd.egress.http.host_check import refused_head, transparent_rewrite
from sandboxd.egress.http.relay import Requests, Rewrite, read_head
from sandboxd.egress.http.responses import TLS_ALERT, GateRefused, http_answer
from sandboxd.egress.sniffing import ssh_opening
from sandboxd.egress.sniffing.first_bytes import CLIENT_FIRST, Protocol, recognise
from sandboxd.egress.sniffing.first_line import LineGuard, RequestInStream
from sandboxd.egress.sniffing.ssh_opening import SshMalformed
from sandboxd.egress.sockets import Inbound, reset, send_all
from sandboxd.egress.splice import Activity, Half, HalfEnded, both, finish, pump
from sandboxd.egress.target import Target
from sandboxd.traffic import Flow, GateRefusal, Traffic

_TLS = b"\x16"
Greet = Callable[[], Awaitable[None]]


class TalkLimits(msgspec.Struct, frozen=True):
    """`sent`, `received`: bytes of one execution, None: unlimited.

    `opening_s`: how long a client may take to name its host.
    """

    opening_s: float
    sent: int | None = None
    received: int | None = None


class GateConnection:
    """`traffic` belongs to the execution that made the connection."""

    def __init__(
        self, inbound: Inbound, dialer: Dialer, traffic: Traffic, limits: TalkLimits
    ) -> None:
        self.activity = Activity()
        self.target: Target | None = None
        self.sending = False  # the client may still be sending
        self._inbound = inbound
        self._dialer = dialer
        self._traffic = traffic
        self._limits = limits
        self._flow: Flow | None = None

    async def hold(self, target: Target, greet: Greet | None = None) -> None:
        """Serve the connection to an allowed host until it ends.

        `greet` tells a proxy's client that it may send. Unreachable: the caller
        resets the connection, because an answer of the gate's would look like the host's.
        """
        self.target, self.sending = target, True
        if target.port not in CLIENT_FIRST:
            server = await self._dialed(target)
            if greet is not None:
                await greet()
            await self._served(server, target, None)
            return
        if greet is not None:
            await greet()
        if not self._inbound.buffer:
            with anyio.move_on_after(self._limits.opening_s):
                await self._inbound.more()
        if not self._inbound.buffer:
            return
        protocol = await recognise(self._inbound, target, self._limits.opening_s)
        if protocol == "http":
            await self.exchange(target, await self._head(target), transparent_rewrite(target))
        else:
            await self._served(await self._dialed(target), target, protocol)

    async def _dialed(self, target: Target) -> socket.socket:
        try:
            server = await self._dialer.dial(target)
        except Unreachable as error:
            self._traffic.note_unreachable(target.host, target.port, str(error))
            raise
        self._flow = self._traffic.open_flow(target.host, target.port)
        self.activity.note_progress()
        return server

    async def _served(
        self, server: socket.socket, target: Target, protocol: Protocol | None
    ) -> None:
        """`protocol` is None where the server may speak first."""
        client, rewrite = self._inbound.sock, transparent_rewrite(target)
        requests = self._requests(server, rewrite, single=False)
        speaks_http = False

        async def forward() -> None:
            nonlocal speaks_http
            patience_s = self._limits.opening_s
            known = protocol or await recognise(self._inbound, target, patience_s)
            if known == "http":
                speaks_http = True
                head = await self._head(target)
                rewrite(head, True)
                await self._forward_requests(requests, head, server)
            else:
                await self._pass_unread(server, target, known)
            self.sending = False

        async def back() -> None:
            await requests.watch_answer(client, self._received)
            await pump(server, client, self._received, self.activity)
            if speaks_http:
                raise HalfEnded

        await _relay_both(forward, back, server, target)

    async def _pass_unread(self, server: socket.socket, target: Target, known: Protocol) -> None:
        """Relay a protocol other than HTTP. A LineGuard looks for a request in the first line."""
        guard = LineGuard(is_tls=known == "tls")
        try:
            if known == "ssh":
                await self._begin_ssh(server, guard)
            await self._flush(server, guard)
            await pump(self._inbound.sock, server, self._sent, self.activity, guard)
        except RequestInStream:
            reason = "what was sent became an HTTP request that cannot be read"
            raise GateRefused(GateRefusal(target.host, target.port, reason, allow=())) from None
        except SshMalformed as error:
            raise GateRefused(GateRefusal(target.host, target.port, str(error), allow=())) from None

    async def _begin_ssh(self, server: socket.socket, guard: LineGuard) -> None:
        """The client's banner goes out first: it may wait for the server's."""
        line = ssh_opening.banner(self._inbound.buffer)
        assert line is not None
        await self._send_on(server, self._inbound.taken(len(line)), guard)
        with anyio.fail_after(self._limits.opening_s):
            while ssh_opening.first_packet(self._inbound.buffer) is None:
                if not await self._inbound.more():
                    raise SshMalformed("the first packet of SSH is cut off")

    async def _flush(self, server: socket.socket, guard: LineGuard | None = None) -> None:
        await self._send_on(server, self._inbound.taken(len(self._inbound.buffer)), guard)

    async def _send_on(
        self, server: socket.socket, data: bytes, guard: LineGuard | None = None
    ) -> None:
        if data:
            if guard is not None:
                guard.feed(data)
            self._sent(len(data))
            await send_all(server, data)

    # plain HTTP

    async def _head(self, target: Target) -> RequestHead:
        try:
            head = await read_head(self._inbound, self._limits.opening_s)
        except HeadMalformed as error:
            raise refused_head(error, target) from None
        if head is None:
            raise ConnectionResetError("the client has gone")
        return head

    async def exchange(
        self, target: Target, head: RequestHead, rewrite: Rewrite, *, single: bool = False
    ) -> None:
        """A request whose head has been read, and those that follow on the same connection."""
        self.target, self.sending = target, True
        rewrite(head, True)  # refuses before the gate connects
        server = await self._dialed(target)
        client, requests = self._inbound.sock, self._requests(server, rewrite, single=single)

        async def forward() -> None:
            await self._forward_requests(requests, head, server)
            self.sending = False

        async def back() -> None:
            await requests.watch_answer(client, self._received)
            await pump(server, client, self._received, self.activity)
            raise HalfEnded

        await _relay_both(forward, back, server, target)

    async def _forward_requests(
        self, requests: Requests, head: RequestHead, server: socket.socket
    ) -> None:
        ending = await requests.forward(head)
        if ending == "switched":
            await self._flush(server)
            await pump(self._inbound.sock, server, self._sent, self.activity)
            return
        self.sending = False
        if ending == "last" and (self._inbound.buffer or await self._inbound.more()):
            # A further request: the client has to reconnect after this one is answered.
            await anyio.sleep_forever()
        finish(server)

    def _requests(self, server: socket.socket, rewrite: Rewrite, *, single: bool) -> Requests:
        return Requests(
            self._inbound, server, rewrite, self._sent, self.activity,
            patience_s=self._limits.opening_s, single=single,
        )  # fmt: skip

    # counting and ending

    def _sent(self, count: int) -> None:
        assert self._flow is not None
        self._check("sent", self._flow.sent(count), self._limits.sent)

    def _received(self, count: int) -> None:
        assert self._flow is not None
        self._check("received", self._flow.received(count), self._limits.received)

    def _check(self, what: str, total: int, limit: int | None) -> None:
        if limit is not None and total > limit and self.target is not None:
            reason = f"more than {limit} bytes were {what} ([egress] max_{what}_bytes)"
            raise GateRefused(GateRefusal(self.target.host, self.target.port, reason, allow=()))

    async def refuse(self, error: GateRefused, *, http: bool = False) -> None:
        """Report the refusal, and answer in the program's protocol or with a reset."""
        self._traffic.refuse(error.refusal)
        sock = self._inbound.sock
        if self._flow is not None:
            reset(sock)  # in the middle of the server's stream
            return
        with suppress(OSError), anyio.move_on_after(1):
            if self._inbound.buffer.startswith(_TLS):
                await send_all(sock, TLS_ALERT)
            elif http or self.target is None or self.target.port in CLIENT_FIRST:
                await send_all(sock, http_answer(error))
            else:
                reset(sock)
                return
            finish(sock)
            while await self._inbound.more():  # unread bytes would turn the close into a reset
                self._inbound.buffer.clear()


async def _relay_both(forward: Half, back: Half, server: socket.socket, target: Target) -> None:
    try:
        await both(forward, back)
    except HeadMalformed as error:
        raise refused_head(error, target) from None
    finally:
        server.close()
