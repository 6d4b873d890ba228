"""Warm sandboxes: one is ready before its command arrives, serves exactly one, and is thrown away.

Keyed by the resolved spec, so a warm sandbox is the one that a cold start would make. A request
never waits behind a refill: whatever sandbox becomes ready first goes to the oldest waiter.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections import Counter, deque
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

import anyio
import msgspec

from sandboxd import event_loop, progress
from sandboxd.backends.interface import Backend
from sandboxd.config.config import Pool as PoolConfig
from sandboxd.policy.plan import SandboxSpec
from sandboxd.progress import ReportProgress
from sandboxd.supervisor.background import Background
from sandboxd.supervisor.hanging_mount_checks import MountChecks
from sandboxd.supervisor.sandboxes.demand import Demand
from sandboxd.types import Sandbox
from sandboxd_proto.errors import SandboxdError, ShuttingDown

log = logging.getLogger(__name__)
MAX_KEYS = 64
SWEEP_S = 1.0
MOST_OPENING = 2 * (os.cpu_count() or 1) + 8  # at once; the others queue
MOST_OPENING_REMOTE = 512  # it takes seconds, and hardly any time of this machine
OPENS_GRACE_S = 2.0  # a server elsewhere may not answer at all
REFILL_AFTER_S = 0.004  # a short command has ended by then, so the refill does not compete with it

Key = tuple[str, SandboxSpec]


class Held(msgspec.Struct, frozen=True):
    """An open sandbox and the stack that closes it."""

    sandbox: Sandbox
    hold: AsyncExitStack


@dataclass(eq=False, slots=True)
class _Waiter:
    ready: event_loop.Future[None] = field(default_factory=event_loop.create_future)
    held: Held | None = None
    error: BaseException | None = None
    abandoned: bool = False
    owner: object = None
    number: int = 0  # in the order in which they came
    tell: ReportProgress | None = None


@dataclass(eq=False, slots=True)
class _Shelf:
    """Everything about one key."""

    backend: Backend
    spec: SandboxSpec
    ready: deque[Held] = field(default_factory=deque)
    waiters: deque[_Waiter] = field(default_factory=deque)
    opening: int = 0
    demand: Demand = field(default_factory=Demand)

    @property
    def remote(self) -> bool:
        return self.backend.capabilities.remote


class WarmPool:
    def __init__(self, config: PoolConfig, background: Background, mounts: MountChecks) -> None:
        self._mounts = mounts
        self._mount_changes = 0
        self._config = config
        self._background = background
        self._shelves: dict[Key, _Shelf] = {}
        self._waiting = 0
        self._opening: Counter[bool] = Counter()  # for waiters, on all shelves; by remote or not
        self._numbers = itertools.count()
        self._waiters_of: Counter[object] = Counter()
        self._lacking: dict[_Shelf, None] = {}  # those that may want more sandboxes
        self._refilling = 0
        self._timer: event_loop.Timer | None = None  # of the next refill
        self._in_use = anyio.Event()
        self._closed = False
        self._opens: set[event_loop.Deadline] = set()
        self._all_open = anyio.Event()

    @property
    def warm(self) -> int:
        return sum([len(shelf.ready) for shelf in self._shelves.values()])

    async def take(
        self,
        backend: Backend,
        spec: SandboxSpec,
        owner: object = None,
        tell: ReportProgress | None = None,
    ) -> Held:
        """A sandbox in which no command has run. The caller closes it. Where many wait, an owner
        that waits for few goes before one that waits for many. `tell`: gets progress reports.

        It returns without waiting if there is a warm one."""
        known = self._shelves.get((backend.name, spec))
        held = self._ready(known) if known is not None else None
        if held is not None:
            return held
        shelf = self._shelf(backend, spec)
        shelf.demand.used(time.monotonic())
        return await self._wait_for_one(shelf, owner, tell)

    def _ready(self, shelf: _Shelf) -> Held | None:
        while shelf.ready:
            held = shelf.ready.popleft()
            if held.sandbox.verify():
                shelf.demand.used(time.monotonic())
                self._refill_soon(shelf)
                return held
            self.let_go(held.hold)  # dead, or a mount of it changed: another one is used
        return None

    async def _wait_for_one(
        self, shelf: _Shelf, owner: object, tell: ReportProgress | None
    ) -> Held:
        waiter = _Waiter(owner=owner, number=next(self._numbers), tell=tell)
        shelf.waiters.append(waiter)
        self._waiting += 1
        self._waiters_of[owner] += 1
        self._open_more()
        try:
            await waiter.ready
        except BaseException:
            waiter.abandoned = True
            if waiter.held is not None:
                self.let_go(waiter.held.hold)
            raise
        finally:
            self._waiting -= 1
            self._waiters_of[owner] -= 1
            if not self._waiters_of[owner]:
                del self._waiters_of[owner]
            if waiter in shelf.waiters:
                shelf.waiters.remove(waiter)
        self._refill_soon(shelf)
        if waiter.error is not None:
            raise waiter.error
        assert waiter.held is not None
        return waiter.held

    def _open_more(self) -> None:
        while waiting := [one for one in self._shelves.values() if one.waiters]:
            waiting = [one for one in waiting if self._may_open(one)]
            if not waiting:
                return
            shelf = min(waiting, key=lambda one: min(map(self._turn, one.waiters)))
            shelf.opening += 1
            self._opening[shelf.remote] += 1
            self._background.begin(self._open_for_waiter, shelf)

    def _may_open(self, shelf: _Shelf) -> bool:
        most = MOST_OPENING_REMOTE if shelf.remote else MOST_OPENING
        return self._opening[shelf.remote] < most and shelf.opening < len(shelf.waiters)

    def _turn(self, waiter: _Waiter) -> tuple[int, int]:
        """The key by which waiters are served: the smallest is next."""
        return self._waiters_of[waiter.owner], waiter.number

    async def _open_for_waiter(self, shelf: _Shelf) -> None:
        try:
            await self._open(shelf)
        finally:
            self._opening[shelf.remote] -= 1
            self._open_more()

    async def _open(self, shelf: _Shelf) -> None:
        hold = AsyncExitStack()
        error: BaseException | None = None
        held: Held | None = None
        begun = next(self._numbers)
        abort = event_loop.Deadline(None)
        progress.progress_callback.set(partial(_tell_all, shelf))
        opening = event_loop.Begun(self._enter(shelf, hold))
        try:
            await event_loop.enter_task()
            with abort:
                self._opens.add(abort)
                held = Held(await opening, hold)
        except SandboxdError as refused:
            error = refused
        except Exception as broken:
            log.exception("a sandbox could not be opened")
            error = broken
        finally:
            self._opens.discard(abort)
            shelf.opening -= 1
            if not self._opens:
                self._all_open.set()
        if held is None and error is None:
            error = ShuttingDown("the daemon is shutting down")
        self._hand_over(shelf, held, error, begun)

    async def _enter(self, shelf: _Shelf, hold: AsyncExitStack) -> Sandbox:
        if not shelf.backend.capabilities.opens_at_once:
            await event_loop.enter_task()
        await self._mounts_answer(shelf.spec)
        sandbox = await hold.enter_async_context(shelf.backend.open(shelf.spec))
        if not shelf.backend.capabilities.opens_at_once:
            hold.push_async_callback(_in_task)
        return sandbox

    async def _mounts_answer(self, spec: SandboxSpec) -> None:
        """Check first that the mounts answer: backends open their paths on the event loop's
        thread."""
        if self._mounts.none:
            return
        await event_loop.enter_task()
        paths = _paths(spec)
        new = object()  # not shared with another request's
        await self._mounts.answer(new, lambda: [os.path.lexists(p) for p in paths], paths=paths)

    def _hand_over(
        self, shelf: _Shelf, held: Held | None, error: BaseException | None, begun: int
    ) -> None:
        """What failed was an attempt for those who waited when it began: what has changed since
        then may be good for the others, who get one of their own."""
        # One whose task is cancelled, but has not run since, is done too.
        waiters = [one for one in shelf.waiters if not (one.abandoned or one.ready.done())]
        if held is None and not self._closed:
            waiters = [one for one in waiters if one.number < begun]
        if waiters:
            waiter = min(waiters, key=self._turn)
            shelf.waiters.remove(waiter)
            waiter.held, waiter.error = held, error
            waiter.ready.set_result(None)
            return
        if held is None:
            shelf.demand.forget()  # a spec that cannot be opened is tried again only for a request
        elif self._closed or len(shelf.ready) >= self._wanted(shelf):
            self.let_go(held.hold)
        else:
            shelf.ready.append(held)

    def let_go(self, hold: AsyncExitStack) -> None:
        self._background.begin(hold.aclose)

    def _shelf(self, backend: Backend, spec: SandboxSpec) -> _Shelf:
        """The last one from now on."""
        key = (backend.name, spec)
        shelf = self._shelves.pop(key, None)
        if shelf is None:
            shelf = _Shelf(backend, spec)
            self._in_use.set()
        self._shelves[key] = shelf
        if len(self._shelves) > MAX_KEYS:
            self._drop_oldest()
        return shelf

    def _drop_oldest(self) -> None:
        for key, shelf in self._shelves.items():
            if not shelf.waiters and not shelf.opening:
                self._drop(key)
                return

    def _drop(self, key: Key) -> None:
        shelf = self._shelves.pop(key)
        self._lacking.pop(shelf, None)
        self._discard(shelf, keep=0)

    async def forget_tmp(self, folder: str) -> None:
        """Drop the sandboxes with this session's /tmp: the session has ended."""
        inside = f"{folder}/"
        for key, shelf in list(self._shelves.items()):
            shared = key[1].shared_tmp
            if shared is not None and shared.path.startswith(inside):
                shelf.demand.forget()
                while shelf.ready:
                    await shelf.ready.pop().hold.aclose()

    # refilling, off every request's path

    def _wanted(self, shelf: _Shelf) -> int:
        if not self._config.enabled:
            return 0
        return min(shelf.demand.depth(time.monotonic()), self._config.max_sandboxes)

    def _refill_soon(self, shelf: _Shelf) -> None:
        if self._config.enabled and not self._closed:
            self._lacking[shelf] = None
            if self._timer is None:
                self._timer = event_loop.call_later(REFILL_AFTER_S, self._refill)

    def _refill(self) -> None:
        self._timer = None
        try:
            while self._waiting == 0 and not self._closed and self._refill_one():
                pass
        except Exception:  # the sweep tries again
            log.exception("the warm sandboxes could not be refilled")

    def _refill_one(self) -> bool:
        """Open one for the shelf that lacks the most; False when none is to be opened now."""
        busy = self._refilling + sum(self._opening.values())
        if busy >= 2 or self.warm + busy >= self._config.max_sandboxes:
            return False
        lacks = [(self._wanted(one) - len(one.ready) - one.opening, one) for one in self._lacking]
        for lack, shelf in lacks:
            if lack <= 0:
                del self._lacking[shelf]
        lack, found = max(lacks, key=itemgetter(0), default=(0, None))
        if lack <= 0 or found is None:
            return False
        found.opening += 1
        self._refilling += 1
        self._background.begin(self._open_refill, found)
        return True

    async def _open_refill(self, shelf: _Shelf) -> None:
        try:
            await self._open(shelf)
        finally:
            self._refilling -= 1
            self._open_more()
        self._refill_soon(shelf)

    async def keep_swept(self) -> None:
        """The task that closes sandboxes that are no longer needed."""
        while not self._closed:
            await self._in_use.wait()
            await anyio.sleep(SWEEP_S)
            self._sweep()
            if not self._shelves:
                self._in_use = anyio.Event()

    def _sweep(self) -> None:
        self._drop_stale()
        for key, shelf in list(self._shelves.items()):
            wanted = self._wanted(shelf)
            self._discard(shelf, keep=wanted)
            if len(shelf.ready) < wanted:
                self._refill_soon(shelf)
            idle = not (shelf.ready or shelf.waiters or shelf.opening)
            if idle and shelf.demand.depth(time.monotonic()) == 0:
                self._drop(key)

    def _drop_stale(self) -> None:
        """What the host has unmounted does not stay in use by a sandbox that waits."""
        changes = self._mounts.changes()
        if changes == self._mount_changes:
            return
        self._mount_changes = changes
        for shelf in self._shelves.values():
            if self._mounts.may_hang(_paths(shelf.spec)):
                continue  # verified only for a request, whose mounts answered
            for held in [one for one in shelf.ready if not one.sandbox.verify()]:
                shelf.ready.remove(held)
                self.let_go(held.hold)

    def _discard(self, shelf: _Shelf, *, keep: int) -> None:
        while len(shelf.ready) > keep:
            self.let_go(shelf.ready.pop().hold)

    async def close(self) -> None:
        """Close every warm sandbox; one that is being opened closes itself, or is cancelled."""
        self._closed = True
        self._in_use.set()
        if self._opens:
            self._all_open = anyio.Event()
            with anyio.move_on_after(OPENS_GRACE_S):
                await self._all_open.wait()
        for abort in list(self._opens):
            abort.expire()
        for shelf in list(self._shelves.values()):  # the sweep may drop one meanwhile
            while shelf.ready:
                await shelf.ready.pop().hold.aclose()


async def _in_task() -> None:
    """First when a sandbox is closed that does not close at once."""
    await event_loop.enter_task()


def _paths(spec: SandboxSpec) -> list[str]:
    return [*(grant.path for grant in spec.grants), *(mask.path for mask in spec.masks)]


def _tell_all(shelf: _Shelf, phase: str, done: int, total: int | None) -> None:
    """Any of them may get the sandbox that is being opened."""
    for waiter in shelf.waiters:
        if waiter.tell is not None:
            waiter.tell(phase, done, total)
