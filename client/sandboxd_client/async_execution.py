"""A running command as the asynchronous client shows it: iterate over its events, talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio

from sandboxd_client.conversation import Event, Feed
from sandboxd_client.execution import WRITE_PIECE, new_id
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.messages.execute import ExecuteResult

if TYPE_CHECKING:
    from sandboxd_client.async_client import AsyncClient

# How long leaving waits for the daemon to say that the whole tree is gone, even when cancelled.
LEAVE_LIMIT_S = 10.0


class AsyncExecution:
    """`async with client.stream([...]) as execution: async for event in execution: …`.

    Entering starts the command and raises what `execute` would raise. Leaving cancels it if it
    still runs, and returns when its whole process tree is gone.
    """

    def __init__(self, client: AsyncClient, params: dict[str, Any], passed: list[int]) -> None:
        self._client = client
        self._passed = passed
        self._params = {**params, "stream": True}
        self._params.setdefault("execution_id", new_id())
        self.execution_id: str = self._params["execution_id"]
        self._open: Feed | None = None

    async def __aenter__(self) -> AsyncExecution:
        self._open = await self._client._follow(self._params, self._passed)
        try:
            await self._client._until(self._feed)
            if self._feed.call.failed:
                self._feed.call.result()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave()

    async def _leave(self) -> None:
        feed = self._feed
        was_full = feed.full
        feed.drop()
        self._client._taken(feed, was_full)
        try:
            if not feed.call.done:
                with anyio.move_on_after(LEAVE_LIMIT_S, shield=True):
                    with suppress(SandboxdError):  # it may end by itself just now
                        await self.cancel()
                    await self._client._until(feed.call)
        finally:
            self._client._unfollow(feed)

    @property
    def _feed(self) -> Feed:
        if self._open is None:
            raise RuntimeError("the execution has not been started: use `async with`")
        return self._open

    # what it says

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        feed = self._feed
        feed.consumer = anyio.get_current_task().id
        while True:
            await self._client._until(feed)
            was_full = feed.full
            event = feed.take()
            if event is not None:
                self._client._taken(feed, was_full)
                return event
            if feed.call.done:
                feed.call.result()
                raise StopAsyncIteration

    @property
    def result(self) -> ExecuteResult:
        """How it ended; only after the events have come to their end, or `wait`."""
        if not self._feed.call.done:
            raise RuntimeError("the execution has not ended: iterate to the end, or call wait()")
        result: ExecuteResult = self._feed.call.result()
        return result

    async def wait(self) -> ExecuteResult:
        """Forget the events that are left, and give the result."""
        async for _ in self:
            pass
        return self.result

    # what it is told

    async def write(self, data: str | bytes) -> None:
        """Write to its stdin (`stdin_open` or `pty`); returns when the daemon has taken it."""
        for start in range(0, len(data), WRITE_PIECE):
            await self._client.execution_write(self.execution_id, data[start : start + WRITE_PIECE])

    async def close_stdin(self) -> None:
        await self._client.execution_close_stdin(self.execution_id)

    async def signal(self, signal: int | str) -> None:
        await self._client.execution_signal(self.execution_id, signal)

    async def resize(self, rows: int, cols: int) -> None:
        await self._client.execution_resize(self.execution_id, rows, cols)

    async def cancel(self) -> None:
        """End its whole process tree; the outcome is then `cancelled`."""
        await self._client.execution_cancel(self.execution_id)
