"""A running command as the blocking client shows it: iterate over its events, talk to it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sandboxd_client.conversation import Event, Feed
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.messages.execute import ExecuteResult

if TYPE_CHECKING:
    from sandboxd_client.client import Client

WRITE_PIECE = 1024 * 1024


def new_id() -> str:
    """Chosen here, so that its events can be routed from the first one on."""
    return f"py-{os.getpid()}-{os.urandom(8).hex()}"


class Execution:
    """`with client.stream([...]) as execution: for event in execution: …`.

    Entering starts the command and raises what `execute` would raise. Leaving cancels it if it
    still runs, and returns when its whole process tree is gone.
    """

    def __init__(self, client: Client, params: dict[str, Any], passed: list[int]) -> None:
        self._client = client
        self._passed = passed
        self._params = {**params, "stream": True}
        self._params.setdefault("execution_id", new_id())
        self.execution_id: str = self._params["execution_id"]
        self._open: Feed | None = None

    def __enter__(self) -> Execution:
        self._open = self._client._follow(self._params, self._passed)
        try:
            self._client._until(self._feed)
            if self._feed.call.failed:
                self._feed.call.result()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        feed = self._feed
        feed.drop()
        self._client._taken()
        try:
            if not feed.call.done:
                with suppress(SandboxdError):  # it may end by itself just now
                    self.cancel()
                self._client._until(feed.call)
        finally:
            self._client._unfollow(feed)

    @property
    def _feed(self) -> Feed:
        if self._open is None:
            raise RuntimeError("the execution has not been started: use `with`")
        return self._open

    # what it says

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        feed = self._feed
        feed.consumer = threading.get_ident()
        while True:
            self._client._until(feed)
            event = feed.take()
            if event is not None:
                self._client._taken()
                return event
            if feed.call.done:
                feed.call.result()
                raise StopIteration

    @property
    def result(self) -> ExecuteResult:
        """How it ended; only after the events have come to their end, or `wait`."""
        if not self._feed.call.done:
            raise RuntimeError("the execution has not ended: iterate to the end, or call wait()")
        result: ExecuteResult = self._feed.call.result()
        return result

    def wait(self) -> ExecuteResult:
        """Forget the events that are left, and give the result."""
        for _ in self:
            pass
        return self.result

    # what it is told

    def write(self, data: str | bytes) -> None:
        """Write to its stdin (`stdin_open` or `pty`); returns when the daemon has taken it."""
        for start in range(0, len(data), WRITE_PIECE):
            self._client.execution_write(self.execution_id, data[start : start + WRITE_PIECE])

    def close_stdin(self) -> None:
        self._client.execution_close_stdin(self.execution_id)

    def signal(self, signal: int | str) -> None:
        self._client.execution_signal(self.execution_id, signal)

    def resize(self, rows: int, cols: int) -> None:
        self._client.execution_resize(self.execution_id, rows, cols)

    def cancel(self) -> None:
        """End its whole process tree; the outcome is then `cancelled`."""
        self._client.execution_cancel(self.execution_id)
