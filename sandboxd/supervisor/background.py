"""Work that nobody waits for. A mistake in it is logged; it never ends the daemon."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

from anyio.abc import TaskGroup

log = logging.getLogger(__name__)
Args = TypeVarTuple("Args")


class Background:
    """Owned by the supervisor, whose task group ends with the daemon."""

    def __init__(self, tasks: TaskGroup) -> None:
        self.tasks = tasks

    def start(
        self, work: Callable[[*Args], Awaitable[object]], *args: *Args
    ) -> None:
        self.tasks.start_soon(_contained, work, args)


async def _contained(work: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
    try:
        await work(*args)
    except Exception:
        log.exception("work in the background failed")
