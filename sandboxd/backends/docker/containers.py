"""Create containers, remove them reliably, and remove those of a dead daemon.

The daemon chooses a container's name before the create call, so a container whose creation was
cancelled or timed out can still be removed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import anyio

from sandboxd.backends.docker.engine import Body, Engine, EngineError
from sandboxd_proto.errors import SandboxdError

log = logging.getLogger(__name__)
LABEL = "dev.sandboxd.supervisor"
REMOVE_S = 20.0
SWEEP_S = 2.0


def new_name() -> str:
    return f"sandboxd-{uuid4().hex[:16]}"


class Containers:
    """All containers of this supervisor on one engine."""

    def __init__(self, engine: Engine, identity: str) -> None:
        self.engine = engine
        self.labels = {LABEL: identity}
        self._live: set[str] = set()
        self._left: set[str] = set()

    @asynccontextmanager
    async def created(self, body: Body, name: str | None = None) -> AsyncIterator[str]:
        """A container that is not started yet; on leaving it is removed in any state.

        Removal that fails (the engine is down) is tried again with the next container.
        """
        name = name or new_name()
        self._live.add(name)
        try:
            # A cancelled create call still makes the container.
            with anyio.CancelScope(shield=True):
                container = await self.engine.create(name, body)
            await anyio.lowlevel.checkpoint_if_cancelled()
            yield container
        finally:
            with anyio.CancelScope(shield=True):
                await self._remove(name)
                self._live.discard(name)

    async def _remove(self, name: str) -> None:
        try:
            with anyio.fail_after(REMOVE_S):
                await self.engine.remove(name)
        except (SandboxdError, EngineError, TimeoutError) as error:
            if name in self._live:  # logged once: the removal is retried
                log.warning("container %s could not be removed yet: %s", name, error)
            self._left.add(name)

    async def sweep(self) -> None:
        """Retry removals that failed."""
        left, self._left = self._left, set()
        for name in left:
            await self._remove(name)

    async def keep_swept(self) -> None:
        """The task that retries while the daemon serves."""
        while True:
            await anyio.sleep(SWEEP_S)
            if self._left:
                await self.sweep()

    @property
    def left(self) -> int:
        return len(self._left)

    async def reap(self) -> int:
        """Remove containers of an earlier daemon of this identity, never this daemon's own."""
        (item,) = self.labels.items()
        reaped = 0
        for container in await self.engine.labelled("=".join(item)):
            try:
                name = str((await self.engine.inspect(container))["Name"]).lstrip("/")
                if name in self._live:
                    continue
                await self.engine.remove(container)
                reaped += 1
            except EngineError as error:
                if error.status != 404:
                    log.warning("container %s could not be reaped: %s", container[:12], error)
        if reaped:
            log.info("removed %d containers that an earlier daemon had left", reaped)
        return reaped
