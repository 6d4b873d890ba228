"""asyncio's own interface: the only module that imports asyncio, besides the loop of Windows.

Everything else is written for anyio. What anyio does not have, and what the hot path cannot do with
tasks, is here: readers, timers, callbacks, futures. A callback does bounded work and handles its
own failures: the loop would only log them.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, Task, TimerHandle, create_task, shield, wait
from asyncio import get_running_loop as running_loop
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = [
    "AbstractEventLoop", "Future", "Task", "TimerHandle", "add_reader", "add_writer", "call_later",
    "call_soon", "create_future", "create_task", "log_failure", "remove_reader", "remove_writer",
    "run_in_thread", "running_loop", "shield", "wait",
]  # fmt: skip

T = TypeVar("T")


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
