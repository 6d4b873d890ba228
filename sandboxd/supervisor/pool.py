"""Warm sandboxes: one is ready before its command arrives, serves exactly one, and is thrown away.

Keyed by the resolved spec, so a warm sandbox is the one that a cold start would make. A request
never waits behind a refill: whatever sandbox becomes ready first goes to the oldest waiter.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from sandboxd.backends.interface import Backend
from sandboxd.config import Pool as PoolConfig
from sandboxd.policy.plan import SandboxSpec
from sandboxd.sandbox import Sandbox
from sandboxd.supervisor.background import Background
from sandboxd.supervisor.demand import Demand
from sandboxd_proto.errors import SandboxdError

log = logging.getLogger(__name__)
MAX_KEYS = 256
SWEEP_S = 1.0
REFILL_AFTER_S = 0.004  # a short command has ended by then, and the refill is not in its way

Key = tuple[str, SandboxSpec]


@dataclass(frozen=True, slots=True)
class Held:
    """An open sandbox and the stack that closes it."""

    sandbox: Sandbox
    hold: AsyncExitStack


@dataclass(slots=True)
class _Waiter:
    ready: anyio.Event = field(default_factory=anyio.Event)
    held: Held | None = None
    error: BaseException | None = None
    abandoned: bool = False


@dataclass(slots=True)
class _Shelf:
    """Everything about one key."""

    backend: Backend
    spec: SandboxSpec
    ready: deque[Held] = field(default_factory=deque)
    waiters: deque[_Waiter] = field(default_factory=deque)
    opening: int = 0
    demand: Demand = field(default_factory=Demand)


class WarmPool:
    def __init__(self, config: PoolConfig, background: Background) -> None:
        self._config = config
        self._background = background
        self._shelves: OrderedDict[Key, _Shelf] = OrderedDict()
        self._waiting = 0
        self._wake = anyio.Event()
        self._closed = False

    @property
    def warm(self) -> int:
        return sum(len(shelf.ready) for shelf in self._shelves.values())

    def take_ready(self, backend: Backend, spec: SandboxSpec) -> Held | None:
        """A warm sandbox, if there is one. The caller closes it."""
        shelf = self._shelves.get((backend.name, spec))
        return self._ready(shelf) if shelf is not None else None

    async def take(self, backend: Backend, spec: SandboxSpec) -> Held:
        """A sandbox that nothing has run in. The caller closes it."""
        shelf = self._shelf(backend, spec)
        held = self._ready(shelf)
        if held is not None:
            return held
        shelf.demand.used(time.monotonic())
        return await self._wait_for_one(shelf)

    def _ready(self, shelf: _Shelf) -> Held | None:
        while shelf.ready:
            held = shelf.ready.popleft()
            if held.sandbox.verify():
                shelf.demand.used(time.monotonic())
                self._refill_soon()
                return held
            self.let_go(held.hold)  # stale or dead: the client does not notice
        return None

    async def _wait_for_one(self, shelf: _Shelf) -> Held:
        waiter = _Waiter()
        shelf.waiters.append(waiter)
        self._waiting += 1
        if shelf.opening < len(shelf.waiters):
            self._open_one(shelf)
        try:
            await waiter.ready.wait()
        except BaseException:
            waiter.abandoned = True
            if waiter.held is not None:
                self.let_go(waiter.held.hold)
            raise
        finally:
            self._waiting -= 1
            if waiter in shelf.waiters:
                shelf.waiters.remove(waiter)
        self._refill_soon()
        if waiter.error is not None:
            raise waiter.error
        assert waiter.held is not None
        return waiter.held

    def _open_one(self, shelf: _Shelf) -> None:
        shelf.opening += 1
        self._background.start(self._open, shelf)

    async def _open(self, shelf: _Shelf) -> None:
        hold = AsyncExitStack()
        error: BaseException | None = None
        held: Held | None = None
        try:
            held = Held(await hold.enter_async_context(shelf.backend.open(shelf.spec)), hold)
        except SandboxdError as refused:
            error = refused
        except Exception as broken:
            log.exception("a sandbox could not be opened")
            error = broken
        finally:
            shelf.opening -= 1
        self._hand_over(shelf, held, error)

    def _hand_over(
        self, shelf: _Shelf, held: Held | None, error: BaseException | None
    ) -> None:
        while shelf.waiters:
            waiter = shelf.waiters.popleft()
            if waiter.abandoned:
                continue
            waiter.held, waiter.error = held, error
            waiter.ready.set()
            return
        if held is None:
            shelf.demand.forget()  # a plan that cannot be opened is not tried again unasked
        elif self._closed or len(shelf.ready) >= self._wanted(shelf):
            self.let_go(held.hold)
        else:
            shelf.ready.append(held)

    def let_go(self, hold: AsyncExitStack) -> None:
        self._background.start(hold.aclose)

    def _shelf(self, backend: Backend, spec: SandboxSpec) -> _Shelf:
        key = (backend.name, spec)
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = _Shelf(backend, spec)
            if len(self._shelves) > MAX_KEYS:
                self._drop_oldest()
        self._shelves.move_to_end(key)
        return shelf

    def _drop_oldest(self) -> None:
        for key, shelf in self._shelves.items():
            if not shelf.waiters and not shelf.opening:
                self._discard(shelf, keep=0)
                del self._shelves[key]
                return

    # refilling, off every request's path

    def _wanted(self, shelf: _Shelf) -> int:
        if not self._config.enabled:
            return 0
        return min(shelf.demand.depth(time.monotonic()), self._config.max_sandboxes)

    def _refill_soon(self) -> None:
        if self._config.enabled:
            self._wake.set()

    async def keep_filled(self) -> None:
        """The one task that refills and lets go of what is no longer wanted."""
        while not self._closed:
            with anyio.move_on_after(SWEEP_S if self._shelves else None):
                await self._wake.wait()
            self._wake = anyio.Event()
            await anyio.sleep(REFILL_AFTER_S)
            while self._waiting == 0 and self._refill_one():
                await anyio.lowlevel.checkpoint()
            self._sweep()

    def _refill_one(self) -> bool:
        """Open one for the shelf that lacks the most; False when nothing is lacking."""
        busy = sum(shelf.opening for shelf in self._shelves.values())
        if busy >= 2 or self.warm + busy >= self._config.max_sandboxes:
            return False
        shelves = [
            (self._wanted(shelf) - len(shelf.ready) - shelf.opening, shelf)
            for shelf in self._shelves.values()
        ]
        lack, shelf = max(shelves, key=lambda pair: pair[0], default=(0, None))
        if lack <= 0 or shelf is None:
            return False
        shelf.opening += 1
        self._background.start(self._open_refill, shelf)
        return True

    async def _open_refill(self, shelf: _Shelf) -> None:
        await self._open(shelf)
        self._refill_soon()

    def _sweep(self) -> None:
        for key, shelf in list(self._shelves.items()):
            self._discard(shelf, keep=self._wanted(shelf))
            idle = not (shelf.ready or shelf.waiters or shelf.opening)
            if idle and shelf.demand.depth(time.monotonic()) == 0:
                del self._shelves[key]

    def _discard(self, shelf: _Shelf, *, keep: int) -> None:
        while len(shelf.ready) > keep:
            self.let_go(shelf.ready.pop().hold)

    async def close(self) -> None:
        """Let go of every warm sandbox; what is being opened lets go of itself."""
        self._closed = True
        self._wake.set()
        for shelf in list(self._shelves.values()):  # the sweep may drop one meanwhile
            while shelf.ready:
                await shelf.ready.pop().hold.aclose()
