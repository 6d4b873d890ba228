"""asyncio's own interface: the only module that imports asyncio, besides the loop of Windows.

Everything else is written for anyio. What anyio does not have, and what the hot path cannot do with
tasks, is here: readers, timers, callbacks, futures. A callback does bounded work and handles its
own failures: the loop would only log them.
"""

from __future__ import annotations

import sys
from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Future,
    SelectorEventLoop,
    Task,
    create_task,
    current_task,
    shield,
    wait,
)
from asyncio import get_running_loop as running_loop
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

from sandboxd.timers import PolledTimers, Timer, Timers

__all__ = [
    "AbstractEventLoop",
    "Begun",
    "Deadline",
    "Future",
    "OwnedTasks",
    "Task",
    "Timer",
    "WakeUp",
    "add_end_reader",
    "add_reader",
    "add_writer",
    "call_later",
    "call_soon",
    "create_future",
    "create_task",
    "enter_task",
    "log_failure",
    "new_loop",
    "remove_reader",
    "remove_writer",
    "run_in_thread",
    "running_loop",
    "shield",
    "wait",
    "wait_readable",
]  # fmt: skip

T = TypeVar("T")


if sys.platform == "linux":
    from sandboxd.ready_files import ReadyFiles, Selector

    class PolledLoop(SelectorEventLoop):
        """Calls back where it has waited, without a turn of its own queue."""

        def __init__(self) -> None:
            self.selector = Selector()
            self.selector.attach(PolledTimers(self), log_failure)
            super().__init__(self.selector)

    def new_loop() -> AbstractEventLoop:
        return PolledLoop()

    _ready_files: tuple[AbstractEventLoop, ReadyFiles] | None = None

    def _files() -> ReadyFiles:
        global _ready_files
        loop = running_loop()
        if _ready_files is None or _ready_files[0] is not loop:
            _ready_files = loop, _files_of(loop)
        return _ready_files[1]

    def _files_of(loop: AbstractEventLoop) -> ReadyFiles:
        if isinstance(loop, PolledLoop):
            return loop.selector.files
        files = ReadyFiles(log_failure)
        Context().run(lambda: loop.add_reader(files.fileno(), files.call))
        return files

    def add_reader(fd: Any, callback: Callable[..., object], *args: Any) -> None:
        """Call it as long as `fd` (a number, or what has `fileno`) is readable."""
        _files().add(fd if isinstance(fd, int) else fd.fileno(), callback, args)

    def add_end_reader(fd: int, callback: Callable[..., object]) -> None:
        """As `add_reader`, but only once the other side has closed."""
        _files().add(fd, callback, (), 0)  # a hang-up is always told

    def remove_reader(fd: Any) -> None:
        _files().remove(fd if isinstance(fd, int) else fd.fileno())

else:

    def new_loop() -> AbstractEventLoop:
        return SelectorEventLoop()

    def add_end_reader(fd: int, callback: Callable[..., object]) -> None:
        raise NotImplementedError

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


_timers: Timers | None = None


def call_later(seconds: float, callback: Callable[..., object], *args: Any) -> Timer:
    global _timers
    loop = running_loop()
    if _timers is None or _timers.loop is not loop:
        if sys.platform == "linux" and isinstance(loop, PolledLoop):
            _timers = loop.selector.timers
        else:
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

    A cancel scope of anyio takes several times as long, and every command has a timeout. It works
    in a coroutine that has no task yet, too.
    """

    __slots__ = ("_before", "_expired", "_owner", "_seconds", "_timer")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._timer: Timer | None = None
        self._expired = False

    def __enter__(self) -> Deadline:
        self._owner: Begun[Any] | Task[Any] | None = _RUNNING.begun
        self._before = 0
        if self._owner is None:
            self._owner = task = current_task()
            assert task is not None
            self._before = task.cancelling()
        if self._seconds is not None:
            self._timer = call_later(self._seconds, self.expire)
        return self

    def expire(self) -> None:
        """Now, while the block is being run."""
        self._expired = True
        assert self._owner is not None
        self._owner.cancel()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        if not self._expired:
            return False
        task = None if _RUNNING.begun is not None else current_task()
        others = task is not None and task.uncancel() > self._before  # the task itself is to end
        return kind is CancelledError and not others


class _Running:
    """`begun`: what is being begun or continued without a task."""

    begun: Begun[Any] | None = None


_RUNNING = _Running()


class _TaskEntry:
    """Waits while a coroutine has no task, and else not at all."""

    def __await__(self) -> Generator[None, None, None]:
        if _RUNNING.begun is not None:
            yield


_ENTRY = _TaskEntry()


def enter_task() -> Awaitable[None]:
    """What follows runs in the coroutine's own task: it waits for more than a WakeUp."""
    return _ENTRY


class WakeUp:
    """An event that one coroutine waits for. A coroutine without a task goes on inside `set`."""

    __slots__ = ("_waiting", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: Callable[[], object] | None = None

    def set(self) -> None:
        self.is_set = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting()

    def call(self, waiting: Callable[[], object] | None) -> None:
        """When it is set; None: nothing is called."""
        self._waiting = waiting

    def __await__(self) -> Generator[Any, None, None]:
        if self.is_set:
            return
        if _RUNNING.begun is not None:
            yield self
        else:
            yield from self.future()

    def future(self) -> Future[None]:
        """For a task."""
        future = create_future()
        self._waiting = lambda: _wake(future)
        return future


class Begun(Generic[T]):
    """A coroutine that runs at once, up to its first wait. The rest runs where this object is
    awaited, or after `finish`.

    So a path that seldom waits is written once, and a callback can take it without a task. Cancel
    scopes belong to the task that runs the rest: `enter_task` comes before the first one.
    """

    __slots__ = (
        "_awaited_by", "_cancelled", "_coroutine", "_ended", "_outer", "_result", "_task",
        "_waits_for", "done", "error",
    )  # fmt: skip

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._waits_for: Any = None
        self._outer: Begun[Any] | None = None
        self._awaited_by: Task[Any] | None = None
        self._task: Task[Any] | None = None
        self._ended: Callable[[Begun[T]], None] | None = None
        self._cancelled = False
        self._result: T
        self.error: BaseException | None = None
        self.done = False
        self._step(coroutine.send, None)

    def _step(self, step: Callable[[Any], Any], value: Any) -> None:
        """Run it without a task up to its next wait."""
        before, _RUNNING.begun = _RUNNING.begun, self
        try:
            self._waits_for = step(value)
        except StopIteration as end:
            self._result, self.done = end.value, True
        except (Exception, CancelledError) as error:
            self.error, self.done = error, True
        finally:
            _RUNNING.begun = before

    def finish(self, ended: Callable[[Begun[T]], None]) -> None:
        """Run the rest, with a task only if it waits for something else than a WakeUp."""
        self._ended = ended
        self._arrange()

    def _arrange(self) -> None:
        if self.done:
            assert self._ended is not None
            self._ended(self)
        elif isinstance(self._waits_for, WakeUp):
            self._waits_for.call(self._go_on)
        else:
            self.get_task()

    def _go_on(self) -> None:
        self._step(self._coroutine.send, None)
        self._arrange()

    def get_task(self) -> Task[Any]:
        """The task that finishes it."""
        if self._task is None:
            if isinstance(self._waits_for, WakeUp):
                self._waits_for.call(None)
            self._task = create_task(self._finish())
        return self._task

    async def _finish(self) -> None:
        try:
            self._result = await self
        except BaseException as error:
            self.error = error
        self.done = True
        assert self._ended is not None
        self._ended(self)

    def cancel(self) -> None:
        """Raise CancelledError where it waits, as a task does."""
        if self._outer is not None:
            self._outer.cancel()
        elif self._awaited_by is not None:
            self._awaited_by.cancel()
        elif self._ended is not None and self._task is None:
            assert isinstance(self._waits_for, WakeUp)
            self._waits_for.call(None)
            self._step(self._coroutine.throw, CancelledError())
            self._arrange()
        else:
            self._cancelled = True  # as soon as somebody awaits it

    def result(self) -> T:
        """Of one that is done."""
        if self.error is not None:
            raise self.error
        return self._result

    def __await__(self) -> Generator[Any, Any, T]:
        if self.done:
            return self.result()
        self._outer = _RUNNING.begun
        self._awaited_by = current_task() if self._outer is None else None
        if self._outer is not None and self._waits_for is None:
            yield  # what it enters is the task of the outer one
        while self._waits_for is not None or self._cancelled:
            try:
                if self._cancelled:
                    self._cancelled = False
                    raise CancelledError
                if self._outer is not None or not isinstance(self._waits_for, WakeUp):
                    yield self._waits_for
                elif not self._waits_for.is_set:
                    yield from self._waits_for.future()
                break
            except BaseException as error:  # cancelled while it waits: it may wait again
                try:
                    self._waits_for = self._coroutine.throw(error)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
        rest: Generator[Any, Any, T] = self._coroutine.__await__()
        return (yield from rest)


class OwnedTasks:
    """Tasks that end by themselves when their owner does. A task group of anyio takes ten times as
    long for each."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._live: set[Begun[None]] = set()
        self._failed = failed

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        begun = Begun(work)
        self._live.add(begun)
        begun.finish(self._ended)

    def _ended(self, begun: Begun[None]) -> None:
        self._live.discard(begun)
        if begun.error is not None and not isinstance(begun.error, CancelledError):
            self._failed(begun.error)

    async def end(self, patience_s: float) -> None:
        """Wait for them. What is left then is cancelled, whatever shields it has."""
        while self._live:
            tasks = [begun.get_task() for begun in self._live]
            await wait(tasks, timeout=patience_s)
            for task in tasks:
                task.cancel()
