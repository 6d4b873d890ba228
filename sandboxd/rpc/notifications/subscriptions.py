"""A subscription: a reading position in the audit trail plus its live end. Nothing is queued, so a
slow reader loses nothing and costs no memory."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from sandboxd.audit.query import matches_type, records_after
from sandboxd.audit.trail import Trail
from sandboxd.rpc.notifications.hub import Hub
from sandboxd_proto.messages.audit import Record
from sandboxd_proto.messages.event import Event

BATCH = 256
MAX_SUBSCRIPTIONS = 64  # of one connection: each one is told of each event
MAX_SUBSCRIPTIONS_IN_ALL = 256
_decoder = msgspec.json.Decoder(Record)


@dataclass(slots=True, eq=False)
class Subscription:
    """`sees`: whether this reader may see records of a session."""

    trail: Trail
    hub: Hub
    after: int
    types: list[str] | None
    sees: Callable[[str | None], bool]
    send: Callable[[str, Event], Awaitable[None]]
    id: str = field(default_factory=lambda: f"su-{os.urandom(8).hex()}")
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def run(self) -> None:
        with self.scope:
            while True:
                recorded = self.hub.next_record()
                records = self._in_memory()
                if records is None:
                    records = await anyio.to_thread.run_sync(self._from_files)
                for record in records:
                    self.after = record.seq
                    if matches_type(record.type, self.types) and self.sees(record.session):
                        event = Event(subscription=self.id, cursor=str(record.seq), record=record)
                        await self.send("events/event", event)
                if records:
                    await checkpoint()  # others have their turn between two batches
                else:
                    await recorded.wait()

    def _in_memory(self) -> list[Record] | None:
        """None if the next record is no longer in memory."""
        recent = self.trail.recent
        if self.after >= self.trail.head.seq:
            return []
        if not recent or recent[0][0] > self.after + 1:
            return None
        start = self.after + 1 - recent[0][0]
        lines = [recent[i][1] for i in range(start, min(start + BATCH, len(recent)))]
        return [_decoder.decode(line) for line in lines]

    def _from_files(self) -> list[Record]:
        found: list[Record] = []
        for record in records_after(self.trail.folder, self.after):
            found.append(record)
            if len(found) == BATCH:
                break
        return found
