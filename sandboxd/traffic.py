"""What one execution did on the network: bytes and connections by host, and what was refused.

Written by the gate while the command runs, read by the report on the execution. Bounded,
whatever the command tries: repetitions are counted, not kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import msgspec

MAX_REFUSALS = 256
MAX_HOSTS = 1024
MAX_CLOSED = 32


class GateRefusal(msgspec.Struct, frozen=True):
    """A connection, request or lookup that the gate refused.

    `allow`: the entries that would allow it, None for the host itself, () where none can.
    """

    host: str
    port: int | None
    reason: str
    operation: str = "connect"
    allow: tuple[str, ...] | None = None


@dataclass(slots=True)
class HostTraffic:
    host: str
    port: int
    connections: int = 0
    refused: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


# Whether the execution may connect to a host that the manifest does not name, at a port.
AskHost = Callable[["Traffic", str, int], Awaitable[bool]]


class Traffic:
    """One execution's. `ask`: decides about hosts that are not named; None: they are
    refused. `catch_up`: records what the gate has not read yet, for an execution that has ended."""

    def __init__(self, ask: AskHost | None = None) -> None:
        self.ask = ask
        self.catch_up: Callable[[], None] = lambda: None
        self.allowed: set[tuple[str, int]] = set()
        self.asking: dict[tuple[str, int | None], GateRefusal] = {}
        self.sent_bytes = 0
        self.received_bytes = 0
        self.closed = False
        self._hosts: dict[tuple[str, int], HostTraffic] = {}
        self._refusals: dict[tuple[str, int | None], GateRefusal] = {}
        self._unreachable: dict[tuple[str, int], str] = {}
        self._closed: dict[tuple[str, int], None] = {}
        self._untold: list[GateRefusal] = []
        self._final: list[GateRefusal] | None = None
        self._news = anyio.Event()

    @property
    def hosts(self) -> list[HostTraffic]:
        return list(self._hosts.values())

    @property
    def refusals(self) -> list[GateRefusal]:
        """Also what an approver is still asked about: it is refused if the command ends now. Once
        it is closed the same for all who ask: the result and the audit trail."""
        if self._final is not None:
            return self._final
        return list({**self.asking, **self._refusals}.values())

    def at(self, host: str, port: int) -> HostTraffic:
        key = (host, port)
        found = self._hosts.get(key)
        if found is None:
            found = HostTraffic(host, port)
            if len(self._hosts) < MAX_HOSTS:
                self._hosts[key] = found
        return found

    def open_flow(self, host: str, port: int) -> Flow:
        entry = self.at(host, port)
        entry.connections += 1
        return Flow(self, entry)

    def refuse(self, refusal: GateRefusal) -> None:
        if self.closed:
            return
        if refusal.port is not None:
            self.at(refusal.host, refusal.port).refused += 1
        key = (refusal.host, refusal.port)
        if key in self._refusals or len(self._refusals) >= MAX_REFUSALS:
            return
        self._refusals[key] = refusal
        self._untold.append(refusal)
        self._news.set()

    def note_closed(self, address: str, port: int) -> None:
        """A port of the sandbox's own loopback where nothing listens."""
        if len(self._closed) < MAX_CLOSED:
            self._closed.setdefault((address, port))

    @property
    def closed_ports(self) -> list[tuple[str, int]]:
        return list(self._closed)

    def note_unreachable(self, host: str, port: int, why: str) -> None:
        """An allowed host to which there was no connection: that is no refusal."""
        if len(self._unreachable) < MAX_REFUSALS:
            self._unreachable.setdefault((host, port), why)

    @property
    def unreachable(self) -> list[str]:
        return [
            f"{host}:{port} is an allowed host, but could not be reached: {why}"
            for (host, port), why in self._unreachable.items()
        ]

    async def each_refusal(self) -> list[GateRefusal]:
        """Unreported refusals, as soon as there are any; none once it is closed."""
        while not self._untold and not self.closed:
            self._news = anyio.Event()
            await self._news.wait()
        untold, self._untold = self._untold, []
        return untold

    def close(self) -> None:
        """The execution has ended: later events are dropped."""
        if not self.closed:
            self._final = self.refusals
        self.closed = True
        self._news.set()


class Flow:
    """Counts one connection's bytes."""

    __slots__ = ("_entry", "_traffic")

    def __init__(self, traffic: Traffic, entry: HostTraffic) -> None:
        self._traffic = traffic
        self._entry = entry

    def sent(self, count: int) -> int:
        """The execution's total so far."""
        self._entry.sent_bytes += count
        self._traffic.sent_bytes += count
        return self._traffic.sent_bytes

    def received(self, count: int) -> int:
        self._entry.received_bytes += count
        self._traffic.received_bytes += count
        return self._traffic.received_bytes
