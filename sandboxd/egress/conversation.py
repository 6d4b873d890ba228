"""One connection of a sandbox from its first byte to its end, once it is known where it goes.

The order is the promise: first everything that can be refused is refused, then the real host is
connected to, then bytes flow.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import anyio

from sandboxd.egress.dial import Dialer, Unreachable
from sandboxd.egress.http_head import Head, HeadMalformed
from sandboxd.egress.http_relay import Requests, Rewrite, read_head, wants_upgrade
from sandboxd.egress.opening import CLIENT_FIRST, Protocol, Target, recognised
from sandboxd.egress.refused import TLS_ALERT, Refused, http_answer, plain_answer
from sandboxd.egress.relay import Activity, Ended, both, finish, pump
from sandboxd.egress.streams import Inbound, reset, send_all
from sandboxd.egress.web import refused_head, transparent_rewrite
from sandboxd.traffic import Flow, Refusal, Traffic

_TLS = b"\x16"
Greet = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class TalkLimits:
    """`sent`, `received`: bytes of one execution, None: unlimited.

    `opening_s`: how long a client may take to say whom it wants.
    """

    opening_s: float
    sent: int | None = None
    received: int | None = None


class Conversation:
    """`traffic`: of the execution whose connection it is."""

    def __init__(
        self, inbound: Inbound, dialer: Dialer, traffic: Traffic, limits: TalkLimits
    ) -> None:
        self.activity = Activity()
        self.target: Target | None = None
        self.sending = False  # something of the client's may still be on its way
        self._inbound = inbound
        self._dialer = dialer
        self._traffic = traffic
        self._limits = limits
        self._flow: Flow | None = None

    async def hold(self, target: Target, greet: Greet | None = None) -> None:
        """Serve the connection to an allowed host until it ends.

        `greet` tells a proxy's client that it may speak. Refused and Unreachable before that.
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
        with anyio.move_on_after(self._limits.opening_s) as in_time:
            protocol = await recognised(self._inbound, target)
        if in_time.cancelled_caught or protocol == "nothing":
            return
        if protocol == "http":
            await self.exchange(target, await self._head(target), transparent_rewrite(target))
        else:
            await self._served(await self._dialed(target), target, protocol)

    async def _dialed(self, target: Target) -> socket.socket:
        server = await self._dialer.dial(target)
        self._flow = self._traffic.opened(target.host, target.port)
        self.activity.moved()
        return server

    async def _served(
        self, server: socket.socket, target: Target, protocol: Protocol | None
    ) -> None:
        """`protocol` is None where the server may speak first."""
        client = self._inbound.sock

        async def forward() -> None:
            known = protocol or await recognised(self._inbound, target)
            if known == "http":
                head = await self._head(target)
                rewrite = transparent_rewrite(target)
                rewrite(head, True)
                await self._requests(server, rewrite, single=False).forward(head)
                finish(server)
            else:
                await self._flush(server)
                await pump(client, server, self._sent, self.activity)
            self.sending = False

        async def back() -> None:
            await pump(server, client, self._received, self.activity)

        try:
            await both(forward, back)
        finally:
            server.close()

    async def _flush(self, server: socket.socket) -> None:
        data = self._inbound.taken(len(self._inbound.buffer))
        if data:
            self._sent(len(data))
            await send_all(server, data)

    # plain HTTP

    async def _head(self, target: Target) -> Head:
        try:
            head = await read_head(self._inbound, self._limits.opening_s)
        except HeadMalformed as error:
            raise refused_head(error, target) from None
        if head is None:
            raise ConnectionResetError("the client has gone")
        return head

    async def exchange(
        self, target: Target, head: Head, rewrite: Rewrite, *, single: bool = False
    ) -> None:
        """A request whose head has been read, and those that follow on the same connection."""
        self.target, self.sending = target, True
        rewrite(head, True)  # refuses before anything is connected to
        try:
            server = await self._dialed(target)
        except Unreachable as error:
            text = f"{target.host}:{target.port}: {error}"
            await send_all(self._inbound.sock, plain_answer("502 Bad Gateway", text))
            finish(self._inbound.sock)
            return
        client, requests = self._inbound.sock, self._requests(server, rewrite, single=single)

        async def forward() -> None:
            if await requests.forward(head):
                await self._flush(server)
                await pump(client, server, self._sent, self.activity)
            elif single and self._inbound.buffer:
                raise Ended  # a second request: the client has to connect anew
            else:
                finish(server)
            self.sending = False

        async def back() -> None:
            if wants_upgrade(head):
                await requests.watch_answer(client, self._received)
            await pump(server, client, self._received, self.activity)
            raise Ended

        try:
            await both(forward, back)
        except HeadMalformed as error:
            raise refused_head(error, target) from None
        finally:
            server.close()

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
            raise Refused(Refusal(self.target.host, self.target.port, reason, allow=()))

    async def refuse(self, error: Refused, *, http: bool = False) -> None:
        """Report it, and tell the program as well as it can be told; otherwise it sees a reset."""
        self._traffic.refuse(error.refusal)
        sock = self._inbound.sock
        if self._flow is not None:
            reset(sock)  # in the middle of somebody else's stream
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
