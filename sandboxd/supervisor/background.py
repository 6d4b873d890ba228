"""Background work without a waiting caller. Its errors are logged and never end the daemon."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import TypeVarTuple

import anyio
from anyio.abc import TaskGroup

from sandboxd import event_loop

log = logging.getLogger(__name__)
Args = TypeVarTuple("Args")
AGAIN_AFTER_S = 1.0


class Background:
    """Owned by the supervisor, whose task group ends with the daemon."""

    def __init__(self, tasks: TaskGroup) -> None:
        self.tasks = tasks
        self._begun: set[event_loop.Task[None]] = set()

    def start(self, work: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        self.tasks.start_soon(_contained, work, args)

    def begin(self, work: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        """It runs at once up to its first wait: `event_loop.Begun` says what it may do before. The
        rest is not in the task group, which takes ten times as long for each task."""
        context = copy_context()
        begun = context.run(event_loop.Begun, _contained(work, args))
        if not begun.done:
            task = event_loop.create_task(_finished(begun), context=context)
            self._begun.add(task)
            task.add_done_callback(self._begun.discard)

    async def ended(self) -> None:
        """Wait for what was begun."""
        while self._begun:
            await event_loop.wait(self._begun)


async def keep_running(work: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
    """Run work for the daemon's whole life. It is started again after an error: a short lack of
    descriptors, memory or disk space must not end every command."""
    while True:
        try:
            await work(*args)
        except Exception:
            log.exception("work in the background failed, and is started again")
            await anyio.sleep(AGAIN_AFTER_S)
        else:
            return


async def _finished(begun: event_loop.Begun[None]) -> None:
    await begun


async def _contained(work: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
    try:
        await work(*args)
    except Exception:
        log.exception("work in the background failed")
