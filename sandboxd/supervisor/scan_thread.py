"""A thread that scans commands' output for denials, outside the event loop.

One for the whole daemon: several would only take turns with the event loop more often. Each piece
of work is small, and they are done in the order in which they came. Work that hangs (a named path
on a dead network file system) is given up, and a new thread does the rest.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sandboxd import event_loop

PATIENCE_S = 5.0
MOST_HUNG = 8
T = TypeVar("T")


class GivenUp(Exception):
    """The work took too long."""


@dataclass(slots=True, eq=False)
class _Job(Generic[T]):
    work: Callable[[], T]
    answer: event_loop.Future[T]
    loop: event_loop.AbstractEventLoop
    started: float | None = None

    def settle(self, result: T | None, error: BaseException | None) -> None:
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(result)  # type: ignore[arg-type]


_Jobs = queue.SimpleQueue[_Job[Any] | None]


class ScanThread:
    """Used from the event loop's thread only."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._jobs: _Jobs = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._hung = 0

    def submit(self, work: Callable[[], T]) -> event_loop.Future[T]:
        """What `work` returned or raised; GivenUp when it hangs."""
        loop = event_loop.running_loop()
        job = _Job(work, event_loop.create_future(), loop)
        if self._hung > MOST_HUNG or not self._running():
            job.answer.set_exception(GivenUp())
            return job.answer
        self._jobs.put(job)
        timer = event_loop.call_later(self._patience_s, self._check, job)
        job.answer.add_done_callback(lambda _: timer.cancel())
        return job.answer

    def _running(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(
                target=_work_off, args=(self._jobs,), name="scan", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no more threads for this user
                return False
            self._thread = thread
        return True

    def _check(self, job: _Job[Any]) -> None:
        if job.answer.done():
            return
        late = job.started is not None and time.monotonic() - job.started >= self._patience_s
        if late:
            self._replace()
            job.answer.set_exception(GivenUp())
        else:
            timer = job.loop.call_later(self._patience_s, self._check, job)
            job.answer.add_done_callback(lambda _: timer.cancel())

    def _replace(self) -> None:
        """The hung thread keeps its queue, which then holds only the request to end."""
        old, self._jobs = self._jobs, queue.SimpleQueue()
        self._thread = None
        self._hung += 1
        waiting: list[_Job[Any]] = []
        with suppress(queue.Empty):
            while (job := old.get_nowait()) is not None:
                waiting.append(job)
        old.put(None)
        able = self._hung <= MOST_HUNG and self._running()
        for job in waiting:
            if able:
                self._jobs.put(job)
            else:
                job.settle(None, GivenUp())

    def close(self) -> None:
        self._jobs.put(None)
        self._thread = None


def _work_off(jobs: _Jobs) -> None:
    while (job := jobs.get()) is not None:
        job.started = time.monotonic()
        result, error = None, None
        try:
            result = job.work()
        except Exception as problem:
            error = problem
        with suppress(RuntimeError):  # the loop has been closed
            job.loop.call_soon_threadsafe(job.settle, result, error)
        del job, result, error
