"""asyncio's own interface: the only module that imports asyncio, besides the loop of Windows.

Everything else is written for anyio. What anyio does not have, and what the hot path cannot do with
tasks, is here: readers, timers, callbacks, futures. A callback does bounded work and handles its
own failures: the loop would only log them.
"""

from __future__ import annotations

import errno
import sys
from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Future,
    Task,
    TimerHandle,
    create_task,
    current_task,
    shield,
    wait,
)
from asyncio import get_running_loop as running_loop
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from time import get_clock_info, monotonic
from typing import Any, Generic, TypeVar

__all__ = [
    "AbstractEventLoop", "Begun", "Deadline", "Future", "OwnedTasks", "Task", "Timer",
    "add_reader", "add_writer", "call_later", "call_soon", "create_future", "create_task",
    "enter_task", "log_failure", "remove_reader", "remove_writer", "run_in_thread", "running_loop",
    "shield", "wait", "wait_readable",
]  # fmt: skip

T = TypeVar("T")


MOST_AT_ONCE = 16  # callbacks in one turn of the loop
MOST_CANCELLED = 64  # timers that are kept although they were cancelled
CLOCK_S = get_clock_info("monotonic").resolution

if sys.platform == "linux":
    import select

    class ReadyFiles:
        """The callbacks of readable descriptors: one epoll for all, inside the loop's own.

        Most descriptors live as long as one command. For asyncio each of them takes about fifty
        calls in Python and four exceptions; here one system call adds it and one removes it. The
        callbacks have an empty context.
        """

        def __init__(self, loop: AbstractEventLoop) -> None:
            self.loop = loop
            self._epoll = select.epoll()
            self._entries: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
            Context().run(loop.add_reader, self._epoll.fileno(), self._call)

        def add(self, fd: int, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
            """It replaces an earlier one."""
            if fd in self._entries:
                self.remove(fd)  # the number may be that of another file now
            try:
                self._epoll.register(fd, select.EPOLLIN)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                raise OSError(errno.EMFILE, "no epoll watches are left to this user") from None
            self._entries[fd] = callback, args

        def remove(self, fd: int) -> None:
            if self._entries.pop(fd, None) is not None:
                with suppress(OSError):  # closed already
                    self._epoll.unregister(fd)

        def _call(self) -> None:
            found = [(fd, self._entries.get(fd)) for fd, _ in self._epoll.poll(0, MOST_AT_ONCE)]
            for fd, entry in found:
                if entry is None or self._entries.get(fd) is not entry:
                    continue  # another callback has removed or replaced it
                callback, args = entry
                try:
                    callback(*args)
                except Exception as error:
                    log_failure(f"the callback {callback!r} failed", error)

    _ready_files: ReadyFiles | None = None

    def _files() -> ReadyFiles:
        global _ready_files
        loop = running_loop()
        if _ready_files is None or _ready_files.loop is not loop:
            _ready_files = ReadyFiles(loop)
        return _ready_files

    def add_reader(fd: Any, callback: Callable[..., object], *args: Any) -> None:
        """Call it as long as `fd` (a number, or what has `fileno`) is readable."""
        _files().add(fd if isinstance(fd, int) else fd.fileno(), callback, args)

    def remove_reader(fd: Any) -> None:
        _files().remove(fd if isinstance(fd, int) else fd.fileno())

else:

    def add_reader(fd: Any, callback: Callable[..., object], *args: Any) -> None:
        """Call it as long as `fd` (a number, or what has `fileno`) is readable."""
        running_loop().add_reader(fd, callback, *args)

    def remove_reader(fd: Any) -> None:
        running_loop().remove_reader(fd)


def _wake(sleeper: Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


async def wait_readable(fd: Any) -> None:
    """As anyio's, also outside a task. Nothing else may wait for `fd` meanwhile."""
    number = fd if isinstance(fd, int) else fd.fileno()
    sleeper = create_future()
    add_reader(number, _wake, sleeper)
    try:
        await sleeper
    finally:
        remove_reader(number)


def add_writer(fd: Any, callback: Callable[..., object], *args: Any) -> None:
    running_loop().add_writer(fd, callback, *args)


def remove_writer(fd: Any) -> None:
    running_loop().remove_writer(fd)


def call_soon(callback: Callable[..., object], *args: Any) -> None:
    """After the callbacks that are ready now."""
    running_loop().call_soon(callback, *args)


class Timer:
    __slots__ = ("_timers", "args", "callback")

    def __init__(
        self, timers: Timers, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self._timers = timers
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback, self.args = None, ()
            self._timers.forget_one()


class Timers:
    """All timers of the loop, behind one of its own. For asyncio each takes fifteen calls in
    Python, and every command has several. The callbacks have an empty context.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = count()  # timers of one moment in the order in which they were made
        self._cancelled = 0
        self._armed: TimerHandle | None = None
        self._armed_for = inf
        self._context = Context()

    def add(self, seconds: float, callback: Callable[..., object], args: tuple[Any, ...]) -> Timer:
        timer = Timer(self, callback, args)
        when = monotonic() + seconds
        heappush(self._heap, (when, next(self._numbers), timer))
        if when < self._armed_for:
            self._arm(when)
        return timer

    def forget_one(self) -> None:
        """The next ones are few: a timeout stays in the heap long after its command has ended."""
        self._cancelled += 1
        if self._cancelled > MOST_CANCELLED and 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._cancelled = 0

    def _arm(self, when: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_for = when
        self._armed = self.loop.call_at(when, self._run_due, context=self._context)

    def _run_due(self) -> None:
        self._armed, self._armed_for = None, inf
        for _ in range(MOST_AT_ONCE):
            # The loop itself is early by that much at the most.
            if not self._heap or self._heap[0][0] > monotonic() + CLOCK_S:
                break
            self._call(heappop(self._heap)[2])
        for _ in range(MOST_CANCELLED):  # which need not wake the loop
            if not self._heap or self._heap[0][2].callback is not None:
                break
            self._call(heappop(self._heap)[2])
        if self._heap:
            self._arm(self._heap[0][0])

    def _call(self, timer: Timer) -> None:
        callback, args = timer.callback, timer.args
        timer.callback = None  # cancelling it has no effect any more
        if callback is None:
            self._cancelled -= 1
            return
        try:
            callback(*args)
        except Exception as error:
            log_failure(f"the callback {callback!r} failed", error)


_timers: Timers | None = None


def call_later(seconds: float, callback: Callable[..., object], *args: Any) -> Timer:
    global _timers
    loop = running_loop()
    if _timers is None or _timers.loop is not loop:
        _timers = Timers(loop)
    return _timers.add(seconds, callback, args)


def create_future() -> Future[Any]:
    return running_loop().create_future()


def run_in_thread(work: Callable[..., T], *args: Any) -> Future[T]:
    return running_loop().run_in_executor(None, work, *args)


def log_failure(message: str, error: Exception) -> None:
    """As the loop itself logs the failure of a callback."""
    running_loop().call_exception_handler({"message": message, "exception": error})


class Deadline:
    """A `with` block that is left after `seconds` (None: never), as with anyio.move_on_after.

    A cancel scope of anyio takes several times as long, and every command has a timeout.
    """

    __slots__ = ("_before", "_expired", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._timer: Timer | None = None
        self._expired = False

    def __enter__(self) -> None:
        if self._seconds is not None:
            task = current_task()
            assert task is not None
            self._task, self._before = task, task.cancelling()
            self._timer = call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        if not self._expired:
            return False
        others = self._task.uncancel() > self._before  # the task itself is to end
        return kind is CancelledError and not others


class OwnedTasks:
    """Tasks that end by themselves when their owner does. A task group of anyio takes ten times as
    long for each."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._tasks: set[Task[None]] = set()
        self._failed = failed

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)

    async def end(self, patience_s: float) -> None:
        """Wait for them. What is left then is cancelled, whatever shields it has."""
        while self._tasks:
            await wait(self._tasks, timeout=patience_s)
            for task in self._tasks:
                task.cancel()


class _TaskEntry:
    """Waits while a coroutine is being begun, and else not at all."""

    beginning = False

    def __await__(self) -> Generator[None, None, None]:
        if self.beginning:
            yield


_ENTRY = _TaskEntry()


def enter_task() -> Awaitable[None]:
    """What follows runs in the coroutine's own task: it has a timeout, or can be cancelled."""
    return _ENTRY


class Begun(Generic[T]):
    """A coroutine that runs at once, up to its first wait; awaiting this object runs the rest.

    So a path that seldom waits is written once, and a callback can take it without a task. Cancel
    scopes belong to the task that awaits it: `enter_task` comes before the first one.
    """

    __slots__ = ("_coroutine", "_error", "_result", "_waits_for", "done")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._waits_for: Any = None
        self._error: BaseException | None = None
        self._result: T
        self.done = False
        before, _ENTRY.beginning = _ENTRY.beginning, True
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as end:
            self._result, self.done = end.value, True
        except Exception as error:
            self._error, self.done = error, True
        finally:
            _ENTRY.beginning = before

    def result(self) -> T:
        """Of one that is done."""
        if self._error is not None:
            raise self._error
        return self._result

    def __await__(self) -> Generator[Any, Any, T]:
        if self.done:
            return self.result()
        while self._waits_for is not None:
            try:
                yield self._waits_for
                break
            except BaseException as error:  # cancelled while it waits: it may wait again
                try:
                    self._waits_for = self._coroutine.throw(error)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
        rest: Generator[Any, Any, T] = self._coroutine.__await__()
        return (yield from rest)
