"""File work on mounts that may not answer: a thread tries it first, for a bounded time.

For each request a thread makes the lookups first. The event loop makes them only after the thread
has returned. A mount that did not answer is refused until its thread returns. On a machine
without such mounts this costs one poll.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import anyio

from sandboxd import event_loop
from sandboxd.concurrency import bounded_thread
from sandboxd.policy.paths.hanging_mounts import HANGING, HangingMounts
from sandboxd_proto.errors import Busy

log = logging.getLogger(__name__)
LIMIT_S = 3.0
ANSWERED_S = 1.0
_MOST_KEYS = 1024
MOST_AT_ONCE = 8  # threads that may hang; the diagnosis of failed commands has the others

Wait = Callable[[], Awaitable[None]]


class MountChecks:
    def __init__(self, mounts: HangingMounts = HANGING) -> None:
        self._mounts = mounts
        self._answered: dict[Hashable, float] = {}  # until when; each answer counts once
        self._trying: dict[Hashable, event_loop.Future[None]] = {}
        self._silent: dict[str, int] = {}  # mount point → threads that still wait for it
        self._threads = anyio.Semaphore(MOST_AT_ONCE)

    @property
    def none(self) -> bool:
        """Whether no mount can hang."""
        return not self._mounts.points()

    def changes(self) -> int:
        """Grows when a mount of the host changes."""
        return self._mounts.changes()

    def may_hang(self, paths: Iterable[str]) -> bool:
        return bool(self._mounts.reached(paths))

    def pending(
        self, key: Hashable, work: Callable[[], object], *, paths: Iterable[str] = (),
        folders: Iterable[str] = (),
    ) -> Wait | None:  # fmt: skip
        """What to await before the event loop may do `work`, which looks at the paths and into the
        folders; None if it may at once. Busy if one lies on a mount that is known not to answer."""
        if self.none:
            return None
        reached = self._mounts.reached(folders, below=True) | self._mounts.reached(paths)
        if not reached:
            return None
        self._refuse_silent(reached)
        # The handler is asked again after the wait, and then does the work at once.
        if time.monotonic() < self._answered.pop(key, 0.0):
            return None
        return lambda: self._try(reached, key, work)

    async def answer(
        self, key: Hashable, work: Callable[[], object], *, paths: Iterable[str] = (),
        folders: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Returns when the event loop may do `work`; Busy if the mounts do not answer."""
        wait = self.pending(key, work, paths=paths, folders=folders)
        if wait is not None:
            await wait()

    def _refuse_silent(self, reached: frozenset[str]) -> None:
        for point in sorted(reached):
            if point in self._silent:
                raise _no_answer(point)

    async def _try(
        self, reached: frozenset[str], key: Hashable, work: Callable[[], object]
    ) -> None:
        """Requests for the same thing share one thread."""
        running = self._trying.get(key)
        if running is None:
            running = event_loop.create_task(self._try_alone(reached, key, work))
            self._trying[key] = running
            running.add_done_callback(lambda done: self._trying.pop(key, None))
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
        await event_loop.shield(running)

    async def _try_alone(
        self, reached: frozenset[str], key: Hashable, work: Callable[[], object]
    ) -> None:
        attempt = _Attempt(reached)
        loop = event_loop.running_loop()

        def run() -> bool:
            try:
                work()
            except Exception:  # the event loop gets the same error, and reports it
                log.debug("a look at %s failed", sorted(reached), exc_info=True)
            finally:
                with suppress(RuntimeError):  # the loop has been closed meanwhile
                    loop.call_soon_threadsafe(self._return, attempt)
            return True

        with anyio.move_on_after(LIMIT_S) as waited:
            await self._threads.acquire()
        if waited.cancelled_caught:
            raise _no_answer(min(reached))
        if await bounded_thread.run_within(LIMIT_S, run, default=False):
            if len(self._answered) >= _MOST_KEYS:
                self._answered.clear()
            self._answered[key] = time.monotonic() + ANSWERED_S
            return
        if not attempt.returned:
            attempt.silent = True
            for point in reached:
                self._silent[point] = self._silent.get(point, 0) + 1
            log.warning("no answer from the file system at %s", ", ".join(sorted(reached)))
        raise _no_answer(min(reached))

    def _return(self, attempt: _Attempt) -> None:
        """A thread has returned, perhaps long after its request was refused."""
        attempt.returned = True
        self._threads.release()
        if attempt.silent:
            for point in attempt.reached:
                self._silent[point] -= 1
                if not self._silent[point]:
                    del self._silent[point]


@dataclass(slots=True)
class _Attempt:
    reached: frozenset[str]
    returned: bool = False
    silent: bool = False


def _no_answer(point: str) -> Busy:
    return Busy(
        f"the file system mounted at {point} does not answer",
        remedy="check its server, or unmount it (umount -f, fusermount -u); other folders work",
    )
