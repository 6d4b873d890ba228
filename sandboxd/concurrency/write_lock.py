"""A first-come lock for writing to a connection or pipe."""

from __future__ import annotations

from collections import deque

from sandboxd import event_loop


class WriteLock:
    """A lock of our own: anyio's goes through the event loop even when it is free."""

    def __init__(self) -> None:
        self._busy = False
        self._queue: deque[event_loop.Future[None]] = deque()

    def acquire_nowait(self) -> bool:
        if self._busy:
            return False
        self._busy = True
        return True

    async def acquire(self) -> None:
        if self.acquire_nowait():
            return
        mine = event_loop.create_future()
        self._queue.append(mine)
        try:
            await mine
        except BaseException:
            if mine.done() and not mine.cancelled():
                self.release()
            raise

    def release(self) -> None:
        while self._queue:
            waiting = self._queue.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self._busy = False
