"""Run work that may hang (a path on a dead network file system) in a thread that is never joined.

The event loop waits for it for a bounded time only. A thread that hangs is left behind: it is a
daemon thread, so that it does not delay the end of the process, and there are few of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sandboxd import event_loop

MOST_THREADS = 16
T = TypeVar("T")
_alive = 0  # changed on the event loop's thread, and by threads that end, under the lock
_lock = threading.Lock()


async def run_within(seconds: float, work: Callable[[], T], default: T) -> T:
    """What `work` returns; `default` if that takes longer, or if too many threads hang already."""
    loop = event_loop.running_loop()
    answer: event_loop.Future[T] = event_loop.create_future()
    if not _start(loop, work, answer):
        return default
    done, _ = await event_loop.wait([answer], timeout=seconds)
    return answer.result() if done else default


def _start(
    loop: event_loop.AbstractEventLoop, work: Callable[[], T], answer: event_loop.Future[T]
) -> bool:
    def run() -> None:
        try:
            found = work()
        except BaseException as error:
            _tell(loop, answer, error=error)
        else:
            _tell(loop, answer, result=found)
        finally:
            _count(-1)

    with _lock:
        if _alive >= MOST_THREADS:
            return False
    _count(1)
    try:
        threading.Thread(target=run, name="bounded", daemon=True).start()
    except RuntimeError:  # no more threads for this user
        _count(-1)
        return False
    return True


def _count(change: int) -> None:
    global _alive
    with _lock:
        _alive += change


def _tell(
    loop: event_loop.AbstractEventLoop,
    answer: event_loop.Future[T],
    *,
    result: T | None = None,
    error: BaseException | None = None,
) -> None:
    def settle() -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    with suppress(RuntimeError):  # the loop has been closed meanwhile
        loop.call_soon_threadsafe(settle)
