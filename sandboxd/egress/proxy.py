"""The proxy for what cannot have a listener of its own: wildcards at any port, ranges of ports.

One port, three protocols: HTTP CONNECT, plain HTTP, and SOCKS5 with names (socks5h). Each
connection must bring the credentials that its execution was given in the environment.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Protocol

import anyio

from sandboxd.egress import socks
from sandboxd.egress.conversation import Conversation
from sandboxd.egress.dial import Unreachable
from sandboxd.egress.http_head import Head, HeadMalformed, split_authority
from sandboxd.egress.http_relay import Rewrite, read_head, wants_upgrade
from sandboxd.egress.opening import Target, shown_host
from sandboxd.egress.refused import Refused, plain_answer
from sandboxd.egress.streams import Inbound, send_all
from sandboxd.egress.verdicts import Verdict
from sandboxd.egress.web import UPGRADE, absolute_target
from sandboxd.policy.hosts import HostInvalid, literal, normal_name
from sandboxd.traffic import Refusal, Traffic

_CHALLENGE = 'Proxy-Authenticate: Basic realm="sandboxd"'
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_HOP_BY_HOP = frozenset(
    {"host", "proxy-authorization", "proxy-connection", "connection", "keep-alive", "te",
     "trailer", "upgrade", "http2-settings"}
)  # fmt: skip


class Doorkeeper(Protocol):
    """What the proxy asks the gate."""

    def owner(self, user: str, secret: str) -> Traffic | None:
        """Whose credentials these are."""

    def talk(self, inbound: Inbound, traffic: Traffic) -> Conversation: ...

    async def decide(self, target: Target, judged: Verdict) -> Verdict:
        """The last word on a verdict: where somebody can be asked, they are."""

    def judged(self, target: Target, request: tuple[str, str] | None = None) -> Verdict: ...

    def stranger(self) -> Traffic:
        """Who is told of refusals when the credentials are nobody's."""


class ProxyServer:
    def __init__(
        self, door: Doorkeeper, patience_s: float, *, watch: Callable[[Conversation], None]
    ) -> None:
        self._door = door
        self._patience_s = patience_s
        self._watch = watch

    async def serve(self, inbound: Inbound) -> None:
        with anyio.move_on_after(self._patience_s):
            if not await inbound.more():
                return
        if not inbound.buffer:
            return
        if inbound.buffer[0] == socks.VERSION:
            await self._socks(inbound)
        else:
            await self._http(inbound)

    # HTTP

    async def _http(self, inbound: Inbound) -> None:
        nobody = self._door.talk(inbound, self._door.stranger())
        try:
            head = await read_head(inbound, self._patience_s)
            if head is None:
                return
            is_tunnel = head.method == "CONNECT"
            authority, path = (head.target, "") if is_tunnel else absolute_target(head)
            target = _target(authority, None if is_tunnel else 80)
        except HeadMalformed as error:
            where = Refusal("the proxy", None, str(error), allow=())
            await nobody.refuse(Refused(where, error.status), http=True)
            return
        traffic = await self._admitted(inbound, head, target)
        if traffic is None:
            return
        conversation = self._door.talk(inbound, traffic)
        self._watch(conversation)
        try:
            if is_tunnel:
                await self._tunnel(conversation, inbound, target)
            else:
                await self._request(conversation, head, target, path)
        except Refused as error:
            await conversation.refuse(error, http=True)

    async def _admitted(self, inbound: Inbound, head: Head, target: Target) -> Traffic | None:
        given = head.all("proxy-authorization")
        user, secret = _credentials(given[0]) if len(given) == 1 else ("", "")
        traffic = self._door.owner(user, secret)
        if traffic is None:
            if given:
                reason = "the proxy's credentials are not those of this execution"
                self._door.stranger().refuse(Refusal(target.host, target.port, reason, allow=()))
            status = "407 Proxy Authentication Required"
            text = "sandboxd: take the credentials from the variable http_proxy"
            await send_all(inbound.sock, plain_answer(status, text, _CHALLENGE))
        return traffic

    async def _tunnel(
        self, conversation: Conversation, inbound: Inbound, target: Target
    ) -> None:
        await self._passed(target, self._door.judged(target))

        async def greet() -> None:
            await send_all(inbound.sock, _ESTABLISHED)

        try:
            await conversation.hold(target, greet)
        except Unreachable as error:
            await send_all(inbound.sock, plain_answer("502 Bad Gateway", str(error)))

    async def _request(
        self, conversation: Conversation, head: Head, target: Target, path: str
    ) -> None:
        verdict = self._door.judged(target, (head.method, path))
        await self._passed(target, verdict)
        await conversation.exchange(target, head, _proxied(target, path), single=True)

    async def _passed(self, target: Target, verdict: Verdict) -> None:
        verdict = await self._door.decide(target, verdict)
        if not verdict.allowed:
            raise Refused(Refusal(target.host, target.port, verdict.reason))

    # SOCKS

    async def _socks(self, inbound: Inbound) -> None:
        try:
            with anyio.fail_after(self._patience_s):
                user, secret = await socks.greeted(inbound)
                traffic = self._door.owner(user, secret)
                await socks.answer_login(inbound, accepted=traffic is not None)
                if traffic is None:
                    return
                authority = await socks.requested(inbound)
                target = _target(*authority)
        except (socks.SocksMalformed, HeadMalformed, TimeoutError):
            return
        conversation = self._door.talk(inbound, traffic)
        self._watch(conversation)

        async def greet() -> None:
            await socks.answer(inbound, socks.SUCCEEDED)

        try:
            await self._passed(target, self._door.judged(target))
        except Refused as error:
            traffic.refuse(error.refusal)
            await socks.answer(inbound, socks.NOT_ALLOWED)
            return
        try:
            await conversation.hold(target, greet)
        except Refused as error:
            await conversation.refuse(error)
        except Unreachable:
            await socks.answer(inbound, socks.HOST_UNREACHABLE)


def _proxied(target: Target, path: str) -> Rewrite:
    """Origin form, one request: the server closes, so there is nothing to be confused about."""

    def rewrite(head: Head, first: bool) -> bytes:
        literal_host = f"[{target.host}]" if ":" in target.host else target.host
        host = literal_host if target.port == 80 else f"{literal_host}:{target.port}"
        drop = set(_HOP_BY_HOP) | head.tokens("connection") - {"content-length", "host"}
        add = [("Host", host)]
        if wants_upgrade(head):
            drop -= UPGRADE
        else:
            add.append(("Connection", "close"))
        return head.rendered(path, drop, tuple(add))

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


def _credentials(field: str) -> tuple[str, str]:
    scheme, _, encoded = field.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        user, _, secret = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return user, secret
