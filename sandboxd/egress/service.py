"""Egress of the whole daemon: opens the gates of sandboxes and owns the tasks that serve them."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from sandboxd.config import Egress as EgressConfig
from sandboxd.egress.addresses import NamedAddresses
from sandboxd.egress.conversation import TalkLimits
from sandboxd.egress.dial import Dialer
from sandboxd.egress.gate import Ask, Gate, GateLimits
from sandboxd.egress.listeners import wishes
from sandboxd.egress.resolver import resolver
from sandboxd.egress.verdicts import HostRules
from sandboxd.linux.handed_sockets import SocketWish
from sandboxd.policy.hosts import parse_rule
from sandboxd.policy.plan import NetworkRule
from sandboxd_proto.errors import SandboxUnavailable

log = logging.getLogger(__name__)

# How a backend makes sockets in the network namespace of a sandbox: all of them, or it raises.
MakeSockets = Callable[[Sequence[SocketWish]], Awaitable[list[socket.socket]]]


class EgressService:
    """`ask`: who decides about hosts that nobody has named; None: they are refused."""

    def __init__(self, config: EgressConfig, ask: Ask | None = None) -> None:
        self._config = config
        self._resolver = resolver(config.resolver)
        self._tasks: TaskGroup | None = None
        self.ask = ask

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Gates can be opened inside. On leaving, every gate is gone."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def gate(self, rule: NetworkRule, make_sockets: MakeSockets) -> AsyncIterator[Gate]:
        """The gate of a sandbox in which nothing runs yet. May be left in another task."""
        if self._tasks is None:
            raise SandboxUnavailable("the egress gate is not running")
        config = self._config
        rules = [parse_rule(entry) for entry in rule.hosts]
        sockets = await make_sockets(wishes(rules))
        named = NamedAddresses(rules, config.private_networks)
        gate = Gate(
            HostRules(rules, exfil_rules=config.exfil_rules),
            Dialer(self._resolver, named, config.connect_secs),
            GateLimits(
                config.idle_secs, config.total_secs, config.max_connections,
                TalkLimits(config.connect_secs, config.max_sent_bytes, config.max_received_bytes),
            ),
            self.ask,
        )  # fmt: skip
        self._tasks.start_soon(_serve, gate, sockets)
        try:
            yield gate
        finally:
            with anyio.CancelScope(shield=True):
                await gate.close()


async def _serve(gate: Gate, sockets: list[socket.socket]) -> None:
    """A gate that breaks costs its own sandbox the network, and nobody else anything."""
    try:
        await gate.serve(sockets)
    except Exception:
        log.exception("the gate of a sandbox failed")
