"""Sandboxes that outlive a command: they share /tmp, localhost and background processes."""

from __future__ import annotations

import logging
import math
import os
import time
from contextlib import AsyncExitStack
from uuid import uuid4

import anyio

from sandboxd.backends.interface import Backend
from sandboxd.policy.plan import Plan
from sandboxd.sandbox import Process, Sandbox
from sandboxd.supervisor.background import Background
from sandboxd.supervisor.output import read_some
from sandboxd.supervisor.shared_guard import Member, SharedGuards
from sandboxd_proto.errors import Busy, InvalidParams, NotFound

log = logging.getLogger(__name__)
IDLE_S = 1800.0
MAX_SANDBOXES = 1024
SWEEP_S = 1.0


class PersistentSandbox:
    """`running` counts commands; what they left in the background does not keep it alive."""

    def __init__(
        self, plan: Plan, backend: Backend, sandbox: Sandbox, hold: AsyncExitStack, idle_s: float
    ) -> None:
        self.id = f"sb-{uuid4().hex}"
        self.plan = plan
        self.backend = backend
        self.sandbox = sandbox
        self.hold = hold
        self.idle_s = idle_s
        self.created_at = time.time()
        self.watched: Member | None = None
        self.running = 0
        self.last_used = time.monotonic()

    async def close(self) -> None:
        """Once everything in it is dead, what appeared of the protected paths is moved aside."""
        if self.watched is not None:
            self.watched.mute()
        with anyio.CancelScope(shield=True):
            await self.hold.aclose()
            for path, moved_to in await self.watched.conclude() if self.watched else ():
                log.warning("protected path %s appeared; it is now %s", path, moved_to or "gone")

    def idle(self, now: float) -> bool:
        return self.running == 0 and now - self.last_used > self.idle_s


class PersistentSandboxes:
    def __init__(self, background: Background) -> None:
        self._background = background
        self._by_id: dict[str, PersistentSandbox] = {}
        self._guards = SharedGuards()

    def __len__(self) -> int:
        return len(self._by_id)

    def all(self) -> list[PersistentSandbox]:
        return list(self._by_id.values())

    def admit(self, idle_s: float | None) -> float:
        """The idle time-out to use; refuses before anything is opened."""
        if idle_s is not None and not (math.isfinite(idle_s) and idle_s > 0):
            raise InvalidParams("idle_secs must be greater than zero", field="idle_secs")
        if len(self._by_id) >= MAX_SANDBOXES:
            raise Busy(
                f"{MAX_SANDBOXES} sandboxes exist already",
                remedy="destroy one with sandbox/destroy",
            )
        return IDLE_S if idle_s is None else idle_s

    def add(self, made: PersistentSandbox) -> None:
        """Its protected paths are watched for as long as it lives."""

        def violated() -> None:
            log.warning("sandbox %s shows a protected path that was made: it is ended", made.id)
            self._forget(made)

        made.watched = self._guards.join(made.plan.sandbox, violated)
        self._by_id[made.id] = made

    def find(self, sandbox_id: str) -> PersistentSandbox:
        found = self._by_id.get(sandbox_id)
        if found is not None and not found.sandbox.alive:
            self._forget(found)
            found = None
        if found is None:
            raise NotFound(
                f"there is no sandbox {sandbox_id!r}", field="sandbox",
                remedy="`sandbox/list` shows those that exist; `sandbox/create` makes one",
            )  # fmt: skip
        return found

    async def destroy(self, sandbox_id: str) -> None:
        found = self.find(sandbox_id)
        del self._by_id[found.id]
        await found.close()

    def _forget(self, found: PersistentSandbox) -> None:
        self._by_id.pop(found.id, None)
        self._background.start(found.close)

    async def end_idle(self) -> None:
        """The one task that ends sandboxes which nobody uses or which have died."""
        while True:
            await anyio.sleep(SWEEP_S)
            now = time.monotonic()
            for found in self.all():
                if found.idle(now) or not found.sandbox.alive:
                    self._forget(found)

    def linger(self, process: Process, outputs: list[int]) -> None:
        """A command ended and left processes behind: drain what they print, until they are gone."""
        self._background.start(_linger, process, outputs)

    async def close(self) -> None:
        """All at once: an end takes 20 ms, of which most is the kernel's time."""
        async with anyio.create_task_group() as ends:
            for found in self.all():
                del self._by_id[found.id]
                ends.start_soon(found.close)


async def _linger(process: Process, outputs: list[int]) -> None:
    try:
        async with anyio.create_task_group() as drains:
            for fd in outputs:
                drains.start_soon(_drain, fd)
            await process.wait()
            drains.cancel_scope.cancel()
    finally:
        for fd in outputs:
            anyio.notify_closing(fd)
            os.close(fd)
        process.close()


async def _drain(fd: int) -> None:
    while await read_some(fd):
        pass
