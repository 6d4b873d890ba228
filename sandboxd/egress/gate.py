"""The gate of one sandbox: opened with it, closed with it, and told which execution runs in it.

Its tasks belong to the daemon's egress service, because a sandbox is opened and let go of by
different tasks.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address

import anyio
from anyio.abc import TaskGroup

from sandboxd.egress import dns_responder, proxy_variables
from sandboxd.egress.book import PROXY, AddressBook
from sandboxd.egress.conversation import Conversation, TalkLimits
from sandboxd.egress.dial import Dialer, Unreachable
from sandboxd.egress.dns_responder import DnsResponder
from sandboxd.egress.http_head import HeadMalformed
from sandboxd.egress.listeners import needs_proxy
from sandboxd.egress.opening import Target
from sandboxd.egress.proxy import ProxyServer
from sandboxd.egress.proxy_variables import variables
from sandboxd.egress.refused import Refused
from sandboxd.egress.streams import Inbound, reset
from sandboxd.egress.verdicts import HostRules, Verdict
from sandboxd.traffic import Refusal, Traffic

log = logging.getLogger(__name__)
DRAIN_STEPS, DRAIN_STEP_S = 100, 0.02
CLOSE_S = 2 * DRAIN_STEPS * DRAIN_STEP_S
_SWEEP_S = 1.0
_BREATH_S = 0.1

# Asked for a verdict `ask`; True lets it through. None: nobody can be asked, so it is refused.
Ask = Callable[[Target, str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class GateLimits:
    idle_s: float
    total_s: float
    connections: int
    talk: TalkLimits


@dataclass(slots=True, eq=False)
class _Live:
    """A connection that is being served."""

    scope: anyio.CancelScope
    traffic: Traffic
    began: float
    conversation: Conversation | None = None


class Gate:
    def __init__(
        self, rules: HostRules, dialer: Dialer, limits: GateLimits, ask: Ask | None = None
    ) -> None:
        self._rules = rules
        self._dialer = dialer
        self._limits = limits
        self._ask = ask
        self._book = AddressBook(rules.rules)
        self._dns = DnsResponder(rules, self._book, self._unknown_name)
        self._bound: dict[str, Traffic] = {}
        self._nobody = Traffic()
        self._live: set[_Live] = set()
        self._busy = anyio.Event()
        self._room = anyio.Semaphore(limits.connections)
        self._listening = anyio.CancelScope()
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()

    # executions

    def bind(self, traffic: Traffic) -> tuple[tuple[str, str], ...]:
        """An execution starts: what happens from now on is its. Answers variables for it."""
        for secret, other in list(self._bound.items()):
            if other.closed:
                del self._bound[secret]
        secret = secrets.token_hex(16)
        self._bound[secret] = traffic
        return variables(self._rules.rules, secret) if needs_proxy(self._rules.rules) else ()

    def stranger(self) -> Traffic:
        """The execution that started last of those that run: a socket does not say whose it is."""
        running = [traffic for traffic in self._bound.values() if not traffic.closed]
        return running[-1] if running else self._nobody

    def owner(self, user: str, secret: str) -> Traffic | None:
        """Whose credentials these are. Every execution's are compared, in constant time."""
        given = f"{user}:{secret}".encode()
        found = None
        for known, traffic in self._bound.items():
            if hmac.compare_digest(f"{proxy_variables.USER}:{known}".encode(), given):
                found = traffic
        return found

    # serving

    @property
    def serving(self) -> bool:
        return not self._ended.is_set()

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Until `close`. Every connection has ended then, and every socket is closed."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._sweep)
                    with self._listening:
                        async with anyio.create_task_group() as loops:
                            for sock in sockets:
                                if sock.type == socket.SOCK_DGRAM:
                                    loops.start_soon(self._dns.serve_udp, sock)
                                else:
                                    loops.start_soon(self._accept, sock, tasks)
                    await self._drain()
                    tasks.cancel_scope.cancel()
        finally:
            for sock in sockets:
                sock.close()
            self._ended.set()

    async def close(self) -> None:
        """Nothing new. Returns when everything has ended."""
        self._listening.cancel()
        with anyio.move_on_after(CLOSE_S):
            await self._ended.wait()
            return
        self._scope.cancel()
        with anyio.move_on_after(CLOSE_S):
            await self._ended.wait()

    async def _drain(self) -> None:
        """What a command had sent before it ended may still arrive, within a short time."""
        for _ in range(DRAIN_STEPS):
            if not any(live.conversation and live.conversation.sending for live in self._live):
                return
            await anyio.sleep(DRAIN_STEP_S)

    async def _accept(self, listener: socket.socket, tasks: TaskGroup) -> None:
        while True:
            await anyio.wait_readable(listener)
            # Without room nothing is accepted: further connections wait in the kernel's queue.
            await self._room.acquire()
            sock = _accepted(listener)
            if sock is None:
                self._room.release()
                await anyio.sleep(_BREATH_S)
                continue
            live = _Live(anyio.CancelScope(), self.stranger(), time.monotonic())
            self._live.add(live)
            self._busy.set()
            tasks.start_soon(self._connection, sock, live)

    async def _connection(self, sock: socket.socket, live: _Live) -> None:
        try:
            with live.scope:
                await self._served(Inbound(sock), live)
        except (OSError, HeadMalformed, Unreachable):
            reset(sock)
        except Exception:
            log.exception("a connection of the gate failed")
            reset(sock)
        finally:
            if live.scope.cancel_called:
                reset(sock)
            sock.close()
            self._live.discard(live)
            self._room.release()

    async def _served(self, inbound: Inbound, live: _Live) -> None:
        here = inbound.sock.getsockname()
        address, port = ip_address(here[0]), int(here[1])
        if port == dns_responder.PORT:
            await self._dns.serve_tcp(inbound)
        elif address == PROXY and port == proxy_variables.PORT:
            patience_s = self._limits.talk.opening_s
            server = ProxyServer(self, patience_s, watch=lambda talk: _watch(live, talk))
            await server.serve(inbound)
        else:
            name = self._book.name_at(address) if isinstance(address, IPv4Address) else None
            if name is None and address.is_loopback and not self._rules.knows(str(address)):
                reset(inbound.sock)  # the sandbox's own loopback: nobody listens there
                return
            await self._transparent(inbound, live, Target(name or str(address), port))

    async def _transparent(self, inbound: Inbound, live: _Live, target: Target) -> None:
        conversation = self.talk(inbound, live.traffic)
        conversation.target = target
        _watch(live, conversation)
        try:
            verdict = await self.decide(target, self.judged(target))
            if not verdict.allowed:
                with anyio.move_on_after(_BREATH_S):
                    await inbound.more()  # so that it can be told no in its own protocol
                raise Refused(Refusal(target.host, target.port, verdict.reason))
            await conversation.hold(target)
        except Refused as error:
            await conversation.refuse(error)

    def talk(self, inbound: Inbound, traffic: Traffic) -> Conversation:
        return Conversation(inbound, self._dialer, traffic, self._limits.talk)

    # judging

    def judged(self, target: Target, request: tuple[str, str] | None = None) -> Verdict:
        try:
            return self._rules.judge_address(ip_address(target.host), target.port)
        except ValueError:
            pass
        if request is None:
            return self._rules.judge(target.host, target.port)
        return self._rules.judge_request(target.host, target.port, *request)

    async def decide(self, target: Target, judged: Verdict) -> Verdict:
        if judged.kind != "ask" or self._ask is None:
            return judged
        if await self._ask(target, judged.reason):
            return Verdict("allow", "it was approved")
        return Verdict("deny", f"{judged.reason}, and it was not approved")

    def _unknown_name(self, name: str) -> None:
        reason = "it is not an allowed host"
        self.stranger().refuse(Refusal(name[:253], None, reason, operation="lookup"))

    # time limits

    async def _sweep(self) -> None:
        while True:
            if not self._live:
                # An idle gate wakes nobody.
                self._busy = anyio.Event()
                await self._busy.wait()
            await anyio.sleep(_SWEEP_S)
            now = time.monotonic()
            for live in list(self._live):
                self._check_time(live, now)

    def _check_time(self, live: _Live, now: float) -> None:
        if now - live.began > self._limits.total_s:
            why = f"the connection lasted longer than {self._limits.total_s:g} s (total_secs)"
        elif now - _last_activity(live) > self._limits.idle_s:
            why = f"nothing moved for {self._limits.idle_s:g} s (idle_secs)"
        else:
            return
        target = live.conversation.target if live.conversation else None
        if target is not None:
            reason = f"{why} of [egress] in the config"
            live.traffic.refuse(Refusal(target.host, target.port, reason, "transfer", ()))
        live.scope.cancel()


def _watch(live: _Live, conversation: Conversation) -> None:
    live.conversation = conversation


def _last_activity(live: _Live) -> float:
    return live.began if live.conversation is None else live.conversation.activity.at


def _accepted(listener: socket.socket) -> socket.socket | None:
    """None: the client has gone already, or there are no descriptors left."""
    try:
        sock, _ = listener.accept()
    except OSError:
        return None
    sock.setblocking(False)
    with suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
