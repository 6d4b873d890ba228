"""Egress of the whole daemon: opens the gates of sandboxes and owns the tasks that serve them."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from sandboxd.config.config import Egress as EgressConfig
from sandboxd.egress.connection import TalkLimits
from sandboxd.egress.dial import Dialer
from sandboxd.egress.dns.resolver import resolver
from sandboxd.egress.gate import Gate, GateLimits
from sandboxd.egress.listeners import socket_requests
from sandboxd.egress.rules import HostRules
from sandboxd.egress.special_addresses import NamedAddresses
from sandboxd.linux.netns.handed_sockets import SocketRequest
from sandboxd.policy.network.host_rules import HostRule, parse_rule
from sandboxd.policy.plan import NetworkRule
from sandboxd_proto.errors import SandboxUnavailable

log = logging.getLogger(__name__)

# How a backend makes sockets in the network namespace of a sandbox: all, or an exception.
MakeSockets = Callable[[Sequence[SocketRequest]], Awaitable[list[socket.socket]]]
_BACKLOG = 128


class EgressService:
    def __init__(self, config: EgressConfig) -> None:
        self._config = config
        self._resolver = resolver(config.resolver)
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Gates can be opened inside this context. On leaving, every gate is closed."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def gate(self, rule: NetworkRule, make_sockets: MakeSockets) -> AsyncIterator[Gate]:
        """The gate of a sandbox in which nothing runs yet. Another task may leave the context."""
        rules = self._rules(rule)
        sockets = await make_sockets(socket_requests(rules))
        async with self._served(self._made(rules), sockets) as gate:
            yield gate

    @asynccontextmanager
    async def proxy_gate(self, rule: NetworkRule) -> AsyncIterator[tuple[Gate, int]]:
        """A gate for a sandbox in the host's own network, and its port at 127.0.0.1.

        Other processes of this machine can connect too: the execution's secret is demanded.
        """
        rules = self._rules(rule)
        listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        listener.setblocking(False)
        port = int(listener.getsockname()[1])
        async with self._served(self._made(rules, proxy_port=port), [listener]) as gate:
            yield gate, port

    def _rules(self, rule: NetworkRule) -> list[HostRule]:
        if self._tasks is None:
            raise SandboxUnavailable("the egress gate is not running")
        return [parse_rule(entry) for entry in rule.hosts]

    def _made(self, rules: list[HostRule], proxy_port: int | None = None) -> Gate:
        config = self._config
        named = NamedAddresses(rules, config.private_networks)
        return Gate(
            HostRules(rules, exfil_rules=config.exfil_rules),
            Dialer(self._resolver, named, config.connect_secs),
            GateLimits(
                config.idle_secs, config.total_secs, config.max_connections,
                TalkLimits(config.connect_secs, config.max_sent_bytes, config.max_received_bytes),
            ),
            proxy_port=proxy_port,
        )  # fmt: skip

    @asynccontextmanager
    async def _served(self, gate: Gate, sockets: list[socket.socket]) -> AsyncIterator[Gate]:
        assert self._tasks is not None
        self._tasks.start_soon(_serve, gate, sockets)
        try:
            yield gate
        finally:
            with anyio.CancelScope(shield=True):
                await gate.close()


async def _serve(gate: Gate, sockets: list[socket.socket]) -> None:
    """A gate that fails takes the network from its own sandbox only."""
    try:
        await gate.serve(sockets)
    except Exception:
        log.exception("the gate of a sandbox failed")
