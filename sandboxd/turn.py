"""The right to write to a connection or pipe: one writer at a time, in the order of asking."""

from __future__ import annotations

from collections import deque

from sandboxd import event_loop


class WriteTurn:
    """A lock of our own: anyio's goes through the event loop even when it is free."""

    def __init__(self) -> None:
        self._busy = False
        self._queue: deque[event_loop.Future[None]] = deque()

    def take_at_once(self) -> bool:
        if self._busy:
            return False
        self._busy = True
        return True

    async def take(self) -> None:
        if self.take_at_once():
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
