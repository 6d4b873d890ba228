"""The gate of one sandbox: accepts its connections, applies the rules, attributes the traffic.

Its tasks belong to the daemon's egress service, because one task opens a sandbox and another one
closes it.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address

import anyio
import msgspec
from anyio.abc import TaskGroup

from sandboxd.egress import unlisted
from sandboxd.egress.address_book import PROXY, AddressBook
from sandboxd.egress.connection import GateConnection, TalkLimits
from sandboxd.egress.dial import Dialer, Unreachable
from sandboxd.egress.dns import responder
from sandboxd.egress.dns.responder import DnsResponder
from sandboxd.egress.http.head import HeadMalformed
from sandboxd.egress.http.responses import GateRefused
from sandboxd.egress.listeners import ANY, needs_proxy
from sandboxd.egress.proxy import variables as proxy_variables
from sandboxd.egress.proxy.server import ProxyServer
from sandboxd.egress.proxy.variables import host_variables, variables
from sandboxd.egress.rules import HostRules, Verdict
from sandboxd.egress.sockets import Inbound, reset
from sandboxd.egress.target import Target
from sandboxd.policy.network.host_rules import literal
from sandboxd.posix.hang_up import has_stopped_sending
from sandboxd.traffic import GateRefusal, Traffic

log = logging.getLogger(__name__)
DRAIN_STEPS, DRAIN_STEP_S = 100, 0.02
CLOSE_S = 2 * DRAIN_STEPS * DRAIN_STEP_S
_SWEEP_S = 1.0
_BREATH_S = 0.1


class GateLimits(msgspec.Struct, frozen=True):
    idle_s: float
    total_s: float | None
    connections: int
    talk: TalkLimits


@dataclass(slots=True, eq=False)
class _Live:
    """A connection that is being served."""

    scope: anyio.CancelScope
    traffic: Traffic
    began: float
    conversation: GateConnection | None = None


class Gate:
    """`proxy_port`: it is a proxy in the host's network at this port, and nothing else."""

    def __init__(
        self, rules: HostRules, dialer: Dialer, limits: GateLimits, *,
        proxy_port: int | None = None,
    ) -> None:  # fmt: skip
        self._proxy_port = proxy_port
        self._rules = rules
        self._dialer = dialer
        self._limits = limits
        self._book = AddressBook(rules.rules)
        self._listed = unlisted.Listed(rules.rules)
        self._attempts: unlisted.Attempts | None = None
        self._dns = DnsResponder(rules, self._book, self._unknown_name, self._may_ask)
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
        """Attribute traffic to this execution from now on. Returns the proxy variables for it."""
        for secret, other in list(self._bound.items()):
            if other.closed:
                del self._bound[secret]
        secret = secrets.token_hex(16)
        self._bound[secret] = traffic
        traffic.catch_up = self._catch_up
        if self._proxy_port is not None:
            return host_variables(secret, self._proxy_port)
        return variables(self._rules.rules, secret) if needs_proxy(self._rules.rules) else ()

    def _catch_up(self) -> None:
        if self._attempts is not None:
            self._attempts.catch_up()

    def latest_execution(self) -> Traffic:
        """The running execution that started last: a socket does not show its execution."""
        running = [traffic for traffic in self._bound.values() if not traffic.closed]
        return running[-1] if running else self._nobody

    def owner(self, user: str, secret: str) -> Traffic | None:
        """The execution with these credentials. All are compared, in constant time."""
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
        """Serve until `close`. On return all connections have ended and all sockets are closed."""
        try:
            ports = _limit(sockets, self._listed)
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._sweep)
                    with self._listening:
                        async with anyio.create_task_group() as loops:
                            for sock in sockets:
                                if sock.type == socket.SOCK_RAW:
                                    self._attempts = unlisted.Attempts(
                                        sock, self._listed, ports, self._attempted, self._closed
                                    )
                                    loops.start_soon(self._attempts.serve)
                                elif sock.type == socket.SOCK_DGRAM:
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
        """Accept no more connections. Returns when all have ended."""
        self._listening.cancel()
        with anyio.move_on_after(CLOSE_S):
            await self._ended.wait()
            return
        self._scope.cancel()
        with anyio.move_on_after(CLOSE_S):
            await self._ended.wait()

    async def _drain(self) -> None:
        """Wait a short time for connections that the command made before it ended."""
        for _ in range(DRAIN_STEPS):
            if not any(live.conversation and live.conversation.sending for live in self._live):
                return
            await anyio.sleep(DRAIN_STEP_S)

    async def _accept(self, listener: socket.socket, tasks: TaskGroup) -> None:
        while True:
            await anyio.wait_readable(listener)
            # At the limit the gate accepts nothing; further connections wait in the kernel's queue.
            await self._room.acquire()
            sock = _accepted(listener)
            if sock is None:
                self._room.release()
                await anyio.sleep(_BREATH_S)
                continue
            live = _Live(anyio.CancelScope(), self.latest_execution(), time.monotonic())
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
        is_proxy = self._proxy_port is not None
        if port == responder.PORT and not is_proxy:
            await self._dns.serve_tcp(inbound)
        elif is_proxy or (address == PROXY and port == proxy_variables.PORT):
            patience_s = self._limits.talk.opening_s
            server = ProxyServer(self, patience_s, watch=lambda talk: _watch(live, talk))
            await server.serve(inbound)
        else:
            name = self._book.name_at(address) if isinstance(address, IPv4Address) else None
            if name is None and address.is_loopback and not self._rules.knows(str(address)):
                reset(inbound.sock)  # the sandbox's own loopback: nothing listens there
                return
            await self._transparent(inbound, live, Target(name or str(address), port))

    async def _transparent(self, inbound: Inbound, live: _Live, target: Target) -> None:
        conversation = self.talk(inbound, live.traffic)
        conversation.target = target
        _watch(live, conversation)
        try:
            verdict = await self.decide(target, self.judge(target), live.traffic, inbound)
            if not verdict.allowed:
                refusal = GateRefusal(target.host, target.port, verdict.reason)
                if literal(target.host) is not None:
                    # Like a host that does not exist: no byte is answered.
                    live.traffic.refuse(refusal)
                    reset(inbound.sock)
                    return
                with anyio.move_on_after(_BREATH_S):
                    await inbound.more()  # so that the refusal can be sent in the client's protocol
                raise GateRefused(refusal)
            await conversation.hold(target)
        except GateRefused as error:
            await conversation.refuse(error)

    def talk(self, inbound: Inbound, traffic: Traffic) -> GateConnection:
        return GateConnection(inbound, self._dialer, traffic, self._limits.talk)

    # verdicts

    def judge(self, target: Target, request: tuple[str, str] | None = None) -> Verdict:
        try:
            return self._rules.judge_address(ip_address(target.host), target.port)
        except ValueError:
            pass
        if request is None:
            return self._rules.judge(target.host, target.port)
        return self._rules.judge_request(target.host, target.port, *request)

    async def decide(
        self, target: Target, judged: Verdict, traffic: Traffic, inbound: Inbound
    ) -> Verdict:
        """The final verdict: where an approver can be asked, they are, while the connection
        hangs unread. ConnectionResetError if the program gives up meanwhile."""
        if judged.kind != "ask" or traffic.ask is None:
            return judged
        allowed: bool | None = None
        refusal = GateRefusal(target.host, target.port, judged.reason)
        traffic.asking[(target.host, target.port)] = refusal
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(_cancel_when_hung_up, inbound.sock, waiting.cancel_scope)
            allowed = await traffic.ask(traffic, target.host, target.port)
            waiting.cancel_scope.cancel()
        traffic.asking.pop((target.host, target.port), None)
        if allowed is None:
            traffic.refuse(refusal)
            raise ConnectionResetError("the program gave up while an approver was asked")
        if allowed:
            return Verdict("allow", "it was approved")
        return Verdict(judged.kind, f"{judged.reason}, and it was not approved")

    def _may_ask(self, name: str) -> bool:
        """Whether an approver can be asked about a name that no rule knows."""
        asks = self.latest_execution().ask is not None
        return asks and self._rules.judge(name, 443).kind == "ask"

    def _attempted(self, address: IPv4Address, port: int) -> None:
        """A connection to an address that no rule names; the sandbox's own loopback is its own."""
        if not address.is_loopback:
            verdict = self._rules.judge_address(address, port)
            self._refuse_closed(str(address), port, verdict)

    def _closed(self, address: IPv4Address, port: int) -> None:
        """A port of a named host, or of an address, that no rule allows: no listener is there. What
        the sandbox has on its own loopback is its own, unless the host has a server there."""
        name = self._book.name_at(address)
        if name is not None and name != "localhost":
            self._refuse_closed(name, port, self._rules.judge(name, port))
        elif address.is_loopback:
            self.latest_execution().note_closed(str(address), port)
        else:
            self._attempted(address, port)

    def _refuse_closed(self, host: str, port: int, verdict: Verdict) -> None:
        if not verdict.allowed:
            self.latest_execution().refuse(GateRefusal(host, port, verdict.reason))

    def _unknown_name(self, name: str) -> None:
        reason = "it is not an allowed host"
        self.latest_execution().refuse(GateRefusal(name[:253], None, reason, operation="lookup"))

    # time limits

    async def _sweep(self) -> None:
        while True:
            if not self._live:
                # An idle gate sets no timer.
                self._busy = anyio.Event()
                await self._busy.wait()
            await anyio.sleep(_SWEEP_S)
            now = time.monotonic()
            for live in list(self._live):
                self._check_time(live, now)

    def _check_time(self, live: _Live, now: float) -> None:
        total_s = self._limits.total_s
        if total_s is not None and now - live.began > total_s:
            why = f"the connection lasted longer than {total_s:g} s (total_secs)"
        elif now - _last_activity(live) > self._limits.idle_s:
            why = f"no bytes were transferred for {self._limits.idle_s:g} s (idle_secs)"
        else:
            return
        target = live.conversation.target if live.conversation else None
        if target is not None:
            reason = f"{why} of [egress] in the config"
            live.traffic.refuse(GateRefusal(target.host, target.port, reason, "transfer", ()))
        live.scope.cancel()


async def _cancel_when_hung_up(sock: socket.socket, scope: anyio.CancelScope) -> None:
    while not has_stopped_sending(sock):  # noqa: ASYNC110 - epoll has one registration a descriptor
        await anyio.sleep(_BREATH_S)
    scope.cancel()


def _limit(sockets: list[socket.socket], listed: unlisted.Listed) -> frozenset[int]:
    """Limit listeners for all addresses to those that are listed. Their ports.

    Where the kernel takes no filter, connections to others are accepted, reported and reset.
    """
    ports: set[int] = set()
    if not any(sock.type == socket.SOCK_RAW for sock in sockets):
        return frozenset()
    with suppress(OSError):
        for sock in sockets:
            if sock.type == socket.SOCK_RAW:
                unlisted.show_attempts_only(sock)
            elif sock.type == socket.SOCK_STREAM and sock.family == socket.AF_INET:
                host, port = sock.getsockname()
                if host == str(ANY) and port != responder.PORT:
                    unlisted.limit_to(sock, listed)
                    ports.add(port)
    return frozenset(ports)


def _watch(live: _Live, conversation: GateConnection) -> None:
    live.conversation = conversation


def _last_activity(live: _Live) -> float:
    return live.began if live.conversation is None else live.conversation.activity.at


def _accepted(listener: socket.socket) -> socket.socket | None:
    """None: the client has disconnected, or no descriptor is left."""
    try:
        sock, _ = listener.accept()
    except OSError:
        return None
    sock.setblocking(False)
    with suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
