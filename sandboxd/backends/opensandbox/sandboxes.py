"""Create sandboxes on the server, delete them reliably, and delete those of a dead daemon.

Each carries metadata: the daemon it belongs to, the run of that daemon, and a name that was chosen
beforehand, so that one whose creation was cancelled or lost its answer can be found and deleted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from sandboxd import progress
from sandboxd.backends.opensandbox.http_client import ApiError
from sandboxd.backends.opensandbox.lifecycle import CREATE_S, Lifecycle
from sandboxd.backends.opensandbox.spec import TIMEOUT_S
from sandboxd_proto.errors import SandboxdError, SandboxUnavailable

log = logging.getLogger(__name__)
OWNER, RUN, NAME = "sandboxd-owner", "sandboxd-run", "sandboxd-name"
SWEEP_S = 5.0
SWEEPS_AT_ONCE = 16
END_S = 20.0
CLOSE_S = 4.0  # when the daemon stops; what is left then is deleted by the next one, or expires
RENEW_S = TIMEOUT_S / 3
POLL_S, POLL_MOST_S = 0.05, 1.0
_OVER = {"Failed", "Terminated", "Deleted", "Succeed", "Succeeded", "Stopped"}
Fill = Callable[[dict[str, str]], dict[str, Any]]


class RemoteSandbox:
    """One that exists on the server. `alive`: as far as is known."""

    def __init__(self, api: Lifecycle, identity: str) -> None:
        self.id = identity
        self.alive = True
        self._api = api
        self._ending = anyio.Lock()
        self._ended = False
        self.renewing = anyio.CancelScope()

    async def end(self, patience_s: float = END_S) -> bool:
        """Delete it and wait until the server does not have it any more. True when that is so."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(patience_s):
            return await self.try_to_end()
        return False

    async def try_to_end(self) -> bool:
        """The same, which can be cancelled."""
        self.alive = False
        async with self._ending:
            if not self._ended:
                try:
                    await self._api.delete(self.id)
                    self._ended = await self._until_gone()
                except (SandboxdError, ApiError) as error:
                    log.warning("sandbox %s could not be deleted yet: %s", self.id, error)
        return self._ended

    async def _until_gone(self) -> bool:
        pause_s = POLL_S
        while True:
            try:
                if (await self._api.get(self.id)).state in _OVER:
                    return True
            except ApiError as error:
                if error.status == 404:
                    return True
                raise
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, POLL_MOST_S)

    async def check(self) -> None:
        """SandboxUnavailable when the server does not have it any more, or does not answer."""
        try:
            state = await self._api.get(self.id)
        except ApiError as error:
            self.alive = False
            raise SandboxUnavailable(
                f"the result of the command is unknown: its sandbox is gone ({error.message})"
            ) from None
        if state.state in _OVER:
            self.alive = False
            raise SandboxUnavailable(
                f"the result of the command is unknown: its sandbox is {state.state} {state.why}"
            )

    async def keep_renewed(self) -> None:
        """As long as it is in use: one that is not renewed ends by itself."""
        with self.renewing:
            while self.alive:
                await anyio.sleep(RENEW_S)
                await self._renew()

    async def _renew(self) -> None:
        try:
            await self._api.renew(self.id, TIMEOUT_S)
        except ApiError as error:
            log.warning("sandbox %s could not be renewed: %s", self.id, error)
            if error.status == 404:
                self.alive = False
        except SandboxdError as error:
            log.warning("sandbox %s could not be renewed: %s", self.id, error)


class RemoteSandboxes:
    """All sandboxes of this daemon on one server. `tasks`: those of the daemon's life."""

    def __init__(self, api: Lifecycle, owner: str, tasks: TaskGroup | None) -> None:
        self._api = api
        self.tasks = tasks
        self._owner = owner
        self._run = uuid4().hex
        self._left: set[RemoteSandbox] = set()
        self._uncertain: dict[str, float] = {}  # name: until when its creation may still finish

    @asynccontextmanager
    async def created(self, fill: Fill, start_s: float) -> AsyncIterator[RemoteSandbox]:
        """A sandbox that runs; on leaving it is deleted. `fill` makes the body with metadata.

        It may be left in another task than it was entered in.
        """
        made = await self._create(fill)
        patience_s = END_S
        try:
            await self._until_running(made, start_s)
            if self.tasks is not None:
                self.tasks.start_soon(made.keep_renewed)
            yield made
        except anyio.get_cancelled_exc_class():
            patience_s = CLOSE_S
            raise
        finally:
            made.renewing.cancel()
            if not await made.end(patience_s):
                self._left.add(made)

    async def _create(self, fill: Fill) -> RemoteSandbox:
        name = uuid4().hex
        body = fill({OWNER: self._owner, RUN: self._run, NAME: name})
        try:
            state = await self._api.create(body)
        except ApiError as error:
            if error.status >= 500:
                self._doubt(name)
            raise
        except BaseException:
            self._doubt(name)
            raise
        return RemoteSandbox(self._api, state.id)

    def _doubt(self, name: str) -> None:
        self._uncertain[name] = time.monotonic() + CREATE_S

    async def _until_running(self, made: RemoteSandbox, start_s: float) -> None:
        pause_s = POLL_S
        last = "Pending"
        progress.report("start", 0, 1)
        with anyio.move_on_after(start_s):
            while True:
                state = await self._api.get(made.id)
                if state.state == "Running":
                    progress.report("start", 1, 1)
                    return
                last = f"{state.state} {state.why}".strip()
                if state.state in _OVER:
                    raise SandboxUnavailable(f"the server's sandbox did not come up: {last}")
                await anyio.sleep(pause_s)
                pause_s = min(2 * pause_s, POLL_MOST_S)
        raise SandboxUnavailable(
            f"the server's sandbox does not run after {start_s:g} s: it is {last}",
            remedy="raise [opensandbox] start_secs, or look at the server: is there room for it?",
        )

    # what is left

    async def reap(self) -> int:
        """Delete what earlier daemons of this owner left; never one of this run."""
        reaped = 0
        for found in await self._api.find({OWNER: self._owner}):
            if found.metadata.get(RUN) != self._run:
                await self._api.delete(found.id)
                reaped += 1
        if reaped:
            log.info("deleted %d sandboxes that an earlier daemon had left", reaped)
        return reaped

    async def sweep(self) -> None:
        """Try again with what could not be deleted; look for what may have been created."""
        room = anyio.Semaphore(SWEEPS_AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for one in list(self._left):
                tasks.start_soon(self._sweep_left, room, one)
            for name, until in list(self._uncertain.items()):
                tasks.start_soon(self._sweep_uncertain, room, name, until)

    async def _sweep_left(self, room: anyio.Semaphore, one: RemoteSandbox) -> None:
        async with room:
            if await one.try_to_end():
                self._left.discard(one)

    async def _sweep_uncertain(self, room: anyio.Semaphore, name: str, until: float) -> None:
        async with room:
            try:
                found = await self._api.find({OWNER: self._owner, NAME: name})
                for one in found:
                    await self._api.delete(one.id)
            except (SandboxdError, ApiError) as error:
                log.debug("the server cannot be asked for leftovers: %s", error)
                return
        if found or time.monotonic() > until:
            self._uncertain.pop(name, None)

    async def keep_swept(self, first: Callable[[], Awaitable[object]]) -> None:
        """The one task that does so. `first`: until it succeeds, it is tried each time."""
        done = False
        while True:
            try:
                if not done:
                    await first()
                    done = True
            except (SandboxdError, ApiError) as error:
                log.debug("the server cannot be asked for leftovers: %s", error)
            await anyio.sleep(SWEEP_S)
            if self._left or self._uncertain:
                await self.sweep()
