"""The proxy for entries without a listener: wildcards at any port, ranges of ports.

One port, three protocols: HTTP CONNECT, plain HTTP, and SOCKS5 with names (socks5h). Each
connection must present the credentials that its execution got in the environment.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Protocol

import anyio

from sandboxd.egress.connection import GateConnection
from sandboxd.egress.dial import Unreachable
from sandboxd.egress.http.head import FRAMING, HeadMalformed, RequestHead, split_authority
from sandboxd.egress.http.host_check import (
    UPGRADE,
    absolute_target,
    host_field,
    unambiguous_path,
)
from sandboxd.egress.http.relay import Rewrite, read_head
from sandboxd.egress.http.responses import GateRefused, plain_answer
from sandboxd.egress.http.upgrade import wants_upgrade
from sandboxd.egress.proxy import socks5
from sandboxd.egress.rules import Verdict
from sandboxd.egress.sockets import Inbound, send_all
from sandboxd.egress.target import Target, shown_host
from sandboxd.policy.network.host_rules import HostInvalid, literal, normal_name
from sandboxd.traffic import GateRefusal, Traffic

_CHALLENGE = 'Proxy-Authenticate: Basic realm="sandboxd"'
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_HOP_BY_HOP = frozenset(
    {"host", "proxy-authorization", "proxy-connection", "connection", "keep-alive", "te",
     "trailer", "upgrade", "http2-settings"}
)  # fmt: skip


class GateRules(Protocol):
    """What the proxy asks the gate."""

    def owner(self, user: str, secret: str) -> Traffic | None:
        """The traffic of the execution with these credentials."""

    def talk(self, inbound: Inbound, traffic: Traffic) -> GateConnection: ...

    async def decide(
        self, target: Target, judged: Verdict, traffic: Traffic, inbound: Inbound
    ) -> Verdict:
        """The final verdict: where an approver can be asked, they are."""

    def judge(self, target: Target, request: tuple[str, str] | None = None) -> Verdict: ...

    def latest_execution(self) -> Traffic:
        """Where refusals are recorded if the credentials belong to no execution."""


class ProxyServer:
    def __init__(
        self, rules: GateRules, patience_s: float, *, watch: Callable[[GateConnection], None]
    ) -> None:
        self._rules = rules
        self._patience_s = patience_s
        self._watch = watch

    async def serve(self, inbound: Inbound) -> None:
        with anyio.move_on_after(self._patience_s):
            if not await inbound.more():
                return
        if not inbound.buffer:
            return
        if inbound.buffer[0] == socks5.VERSION:
            await self._socks(inbound)
        else:
            await self._http(inbound)

    # HTTP

    async def _http(self, inbound: Inbound) -> None:
        nobody = self._rules.talk(inbound, self._rules.latest_execution())
        try:
            head = await read_head(inbound, self._patience_s)
            if head is None:
                return
            is_tunnel = head.method == "CONNECT"
            authority, path = (head.target, "") if is_tunnel else absolute_target(head)
            target = _target(authority, None if is_tunnel else 80)
        except HeadMalformed as error:
            where = GateRefusal("the proxy", None, str(error), allow=())
            await nobody.refuse(GateRefused(where, error.status), http=True)
            return
        traffic = await self._admitted(inbound, head, target)
        if traffic is None:
            return
        conversation = self._rules.talk(inbound, traffic)
        self._watch(conversation)
        try:
            if is_tunnel:
                await self._tunnel(conversation, inbound, target, traffic)
            else:
                await self._request(conversation, inbound, (head, target, path), traffic)
        except GateRefused as error:
            await conversation.refuse(error, http=True)

    async def _admitted(
        self, inbound: Inbound, head: RequestHead, target: Target
    ) -> Traffic | None:
        given = head.all("proxy-authorization")
        user, secret = credentials_in(given[0]) if len(given) == 1 else ("", "")
        traffic = self._rules.owner(user, secret)
        if traffic is None:
            if given:
                reason = "the proxy's credentials are not those of this execution"
                self._rules.latest_execution().refuse(
                    GateRefusal(target.host, target.port, reason, allow=())
                )
            status = "407 Proxy Authentication Required"
            text = "sandboxd: take the credentials from the variable http_proxy"
            await send_all(inbound.sock, plain_answer(status, text, _CHALLENGE))
        return traffic

    async def _tunnel(
        self, conversation: GateConnection, inbound: Inbound, target: Target, traffic: Traffic
    ) -> None:
        await self._passed(target, self._rules.judge(target), traffic, inbound)

        greeted = False

        async def greet() -> None:
            nonlocal greeted
            greeted = True
            await send_all(inbound.sock, _ESTABLISHED)

        try:
            await conversation.hold(target, greet)
        except Unreachable as error:
            if greeted:
                raise  # an answer would be taken for the server's
            await send_all(inbound.sock, plain_answer("502 Bad Gateway", str(error)))

    async def _request(
        self, conversation: GateConnection, inbound: Inbound,
        request: tuple[RequestHead, Target, str], traffic: Traffic,
    ) -> None:  # fmt: skip
        head, target, path = request
        verdict = self._rules.judge(target, (head.method, path))
        await self._passed(target, verdict, traffic, inbound)
        await conversation.exchange(target, head, _proxied(target, path), single=True)

    async def _passed(
        self, target: Target, verdict: Verdict, traffic: Traffic, inbound: Inbound
    ) -> None:
        verdict = await self._rules.decide(target, verdict, traffic, inbound)
        if not verdict.allowed:
            raise GateRefused(GateRefusal(target.host, target.port, verdict.reason))

    # SOCKS

    async def _socks(self, inbound: Inbound) -> None:
        try:
            with anyio.fail_after(self._patience_s):
                user, secret = await socks5.read_greeting(inbound)
                traffic = self._rules.owner(user, secret)
                await socks5.answer_login(inbound, accepted=traffic is not None)
                if traffic is None:
                    return
                authority = await socks5.read_request(inbound)
                target = _target(*authority)
        except (socks5.SocksMalformed, HeadMalformed, TimeoutError):
            return
        conversation = self._rules.talk(inbound, traffic)
        self._watch(conversation)

        greeted = False

        async def greet() -> None:
            nonlocal greeted
            greeted = True
            await socks5.answer(inbound, socks5.SUCCEEDED)

        try:
            await self._passed(target, self._rules.judge(target), traffic, inbound)
        except GateRefused as error:
            traffic.refuse(error.refusal)
            await socks5.answer(inbound, socks5.NOT_ALLOWED)
            return
        try:
            await conversation.hold(target, greet)
        except GateRefused as error:
            await conversation.refuse(error)
        except Unreachable:
            if greeted:
                raise
            await socks5.answer(inbound, socks5.HOST_UNREACHABLE)


def _proxied(target: Target, path: str) -> Rewrite:
    """Origin form, one request per connection, so no second request can be smuggled."""

    def rewrite(head: RequestHead, first: bool) -> bytes:
        # parse_head has refused a Connection field that names framing fields.
        drop = set(_HOP_BY_HOP) | head.tokens("connection") - FRAMING
        add = [("Host", host_field(target))]
        if wants_upgrade(head):
            drop -= UPGRADE
        else:
            add.append(("Connection", "close"))
        return head.rendered(unambiguous_path(path, target), drop, tuple(add))

    return rewrite


def _target(host: str, port: int | None) -> Target:
    """`host` may have a port of its own; `port` is the default, None where one has to be given."""
    name, number = split_authority(host, port)
    if number is None:
        raise HeadMalformed("the request names no port")
    address = literal(name)
    if address is not None:
        return Target(str(address), number)
    try:
        return Target(normal_name(name), number)
    except HostInvalid:
        raise HeadMalformed(f"{shown_host(name)} is not a host") from None


def credentials_in(field: str) -> tuple[str, str]:
    scheme, _, encoded = field.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        decoded = base64.b64decode(encoded.strip(" \t"), validate=True).decode()
    except ValueError:  # not base64, not ASCII, not UTF-8
        return "", ""
    user, _, secret = decoded.partition(":")
    return user, secret
