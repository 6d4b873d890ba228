"""What one execution did on the network: bytes and connections by host, and what was refused.

Written by the gate while the command runs, read by whoever reports on the execution. Bounded,
whatever the command tries: repetitions are counted, not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio

MAX_REFUSALS = 256
MAX_HOSTS = 1024


@dataclass(frozen=True, slots=True)
class Refusal:
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


class Traffic:
    """One execution's."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self.closed = False
        self._hosts: dict[tuple[str, int], HostTraffic] = {}
        self._refusals: dict[tuple[str, int | None], Refusal] = {}
        self._untold: list[Refusal] = []
        self._news = anyio.Event()

    @property
    def hosts(self) -> list[HostTraffic]:
        return list(self._hosts.values())

    @property
    def refusals(self) -> list[Refusal]:
        return list(self._refusals.values())

    def at(self, host: str, port: int) -> HostTraffic:
        key = (host, port)
        found = self._hosts.get(key)
        if found is None:
            found = HostTraffic(host, port)
            if len(self._hosts) < MAX_HOSTS:
                self._hosts[key] = found
        return found

    def opened(self, host: str, port: int) -> Flow:
        entry = self.at(host, port)
        entry.connections += 1
        return Flow(self, entry)

    def refuse(self, refusal: Refusal) -> None:
        if refusal.port is not None:
            self.at(refusal.host, refusal.port).refused += 1
        key = (refusal.host, refusal.port)
        if key in self._refusals or len(self._refusals) >= MAX_REFUSALS:
            return
        self._refusals[key] = refusal
        self._untold.append(refusal)
        self._news.set()

    async def each_refusal(self) -> list[Refusal]:
        """Those that nobody was told of, as soon as there are any; none once it is closed."""
        while not self._untold and not self.closed:
            self._news = anyio.Event()
            await self._news.wait()
        untold, self._untold = self._untold, []
        return untold

    def close(self) -> None:
        """The execution has ended: what comes later is nobody's."""
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
