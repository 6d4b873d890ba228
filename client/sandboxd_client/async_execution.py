"""A running command as the asynchronous client shows it: iterate over its events, control it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio

from sandboxd_client.conversation import Event
from sandboxd_client.execution import WRITE_PIECE, ExecutionState
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.messages.execute import ExecuteResult

if TYPE_CHECKING:
    from sandboxd_client.async_client import AsyncClient

# How long leaving waits for the end of the whole process tree, even when cancelled.
LEAVE_LIMIT_S = 10.0


class AsyncExecution(ExecutionState):
    """`async with client.stream([...]) as execution: async for event in execution: …`.

    Entering starts the command and raises what `execute` would raise. Leaving cancels it if it
    still runs, and returns when its whole process tree is gone. Without `async with` the first
    event that is asked for starts it; iterate to its end, or it runs until the client is closed.
    """

    _enter = "async with"

    def __init__(self, client: AsyncClient, params: dict[str, Any], passed: list[int]) -> None:
        super().__init__(params, passed)
        self._client = client

    def __await__(self) -> Generator[Any, Any, AsyncExecution]:
        """Start it without `async with`."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AsyncExecution:
        if self._open is not None:
            return self
        self._open = await self._client._follow(self._params, self._passed)
        try:
            await self._client._until(self._feed)
            if self._feed.call.failed:
                self._feed.call.result()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
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

    # events

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._open is None:
            await self.__aenter__()
        feed = self._feed
        feed.consumer = anyio.get_current_task().id
        while True:
            await self._client._until(feed)
            was_full = feed.full
            event = feed.take()
            if event is not None:
                self._client._taken(feed, was_full)
                return event
            if feed.ended:
                self._client._unfollow(feed)
                feed.call.result()
                raise StopAsyncIteration

    async def wait(self) -> ExecuteResult:
        """Drop the remaining events, and return the result."""
        async for _ in self:
            pass
        return self.result

    # control

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

    async def kill(self) -> None:
        """The same as `cancel`."""
        await self.cancel()


class AsyncAttachedExecution(AsyncExecution):
    """A detached command: iterating yields its output from what is kept (the last MiB of each
    stream) on, until its end. Leaving does not end it; `cancel` does."""

    def __init__(self, client: AsyncClient, params: dict[str, Any]) -> None:
        super().__init__(client, params, [])
        self._params = params

    async def __aenter__(self) -> AsyncAttachedExecution:
        self._open = await self._client._follow_attached(self._params)
        return self

    async def _leave(self) -> None:
        was_full = self._feed.full
        self._feed.drop()
        self._client._taken(self._feed, was_full)
        self._client._unfollow(self._feed)
