"""asyncio's own interface: the only module that imports asyncio, besides the loop of Windows.

Everything else is written for anyio. What anyio does not have, and what the hot path cannot do with
tasks, is here: readers, timers, callbacks, futures. A callback does bounded work and handles its
own failures: the loop would only log them.
"""

from __future__ import annotations

import sys
from asyncio import (
    AbstractEventLoop,
    Future,
    Task,
    TimerHandle,
    create_task,
    shield,
    wait,
)
from asyncio import get_running_loop as running_loop
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from typing import Any, Generic, TypeVar

__all__ = [
    "AbstractEventLoop", "Begun", "Future", "Task", "TimerHandle", "add_reader", "add_writer",
    "call_later", "call_soon", "create_future", "create_task", "enter_task", "log_failure",
    "remove_reader", "remove_writer", "run_in_thread", "running_loop", "shield", "wait",
]  # fmt: skip

T = TypeVar("T")


if sys.platform == "linux":
    import select

    MOST_AT_ONCE = 16  # callbacks in one turn of the loop

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
            self._epoll.register(fd, select.EPOLLIN)
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


def add_writer(fd: Any, callback: Callable[..., object], *args: Any) -> None:
    running_loop().add_writer(fd, callback, *args)


def remove_writer(fd: Any) -> None:
    running_loop().remove_writer(fd)


def call_soon(callback: Callable[..., object], *args: Any) -> None:
    """After the callbacks that are ready now."""
    running_loop().call_soon(callback, *args)


def call_later(seconds: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
    return running_loop().call_later(seconds, callback, *args)


def create_future() -> Future[Any]:
    return running_loop().create_future()


def run_in_thread(work: Callable[..., T], *args: Any) -> Future[T]:
    return running_loop().run_in_executor(None, work, *args)


def log_failure(message: str, error: Exception) -> None:
    """As the loop itself logs the failure of a callback."""
    running_loop().call_exception_handler({"message": message, "exception": error})


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
