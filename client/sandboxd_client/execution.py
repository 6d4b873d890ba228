"""A running command as the blocking client shows it: iterate over its events, control it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sandboxd_client.conversation import Event, Feed
from sandboxd_client.ids import new_id
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.messages.execute import ExecuteResult

if TYPE_CHECKING:
    from sandboxd_client.client import Client

WRITE_PIECE = 1024 * 1024


class ExecutionState:
    """What the blocking and the asynchronous execution share. `_enter`: the statement to use."""

    _enter = "with"

    def __init__(self, params: dict[str, Any], passed: list[int]) -> None:
        self._passed = passed
        self._params = {**params, "stream": True}
        self._params.setdefault("execution_id", new_id())
        self.execution_id: str = self._params["execution_id"]
        self._open: Feed | None = None

    @property
    def _feed(self) -> Feed:
        if self._open is None:
            raise RuntimeError(
                f"the execution has not been started: use `{self._enter}`, or iterate"
            )
        return self._open

    @property
    def result(self) -> ExecuteResult:
        """The result; available after the last event, or after `wait`."""
        if not self._feed.call.done:
            raise RuntimeError("the execution has not ended: iterate to the end, or call wait()")
        result: ExecuteResult = self._feed.call.result()
        return result


class Execution(ExecutionState):
    """`with client.stream([...]) as execution: for event in execution: …`.

    Entering starts the command and raises what `execute` would raise. Leaving cancels it if it
    still runs, and returns when its whole process tree is gone. Without `with` the first event
    that is asked for starts it, and it ends when it is iterated to its end or forgotten.
    """

    def __init__(self, client: Client, params: dict[str, Any], passed: list[int]) -> None:
        super().__init__(params, passed)
        self._client = client

    def __enter__(self) -> Execution:
        if self._open is not None:
            return self
        self._open = self._client._follow(self._params, self._passed)
        try:
            self._client._until(self._feed)
            if self._feed.call.failed:
                self._feed.call.result()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *error: object) -> None:
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

    def __del__(self) -> None:
        feed = getattr(self, "_open", None)
        if feed is not None and not feed.call.done:
            feed.drop()
            with suppress(Exception):  # the client, or the interpreter, may be ending
                self._client._abandon(feed.call)

    # events

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._open is None:
            self.__enter__()
        feed = self._feed
        feed.consumer = threading.get_ident()
        while True:
            self._client._until(feed)
            event = feed.take()
            if event is not None:
                self._client._taken()
                return event
            if feed.ended:
                self._client._unfollow(feed)
                feed.call.result()
                raise StopIteration

    def wait(self) -> ExecuteResult:
        """Drop the remaining events, and return the result."""
        for _ in self:
            pass
        return self.result

    # control

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

    def kill(self) -> None:
        """The same as `cancel`."""
        self.cancel()


class AttachedExecution(Execution):
    """A detached command: iterating yields its output from what is kept (the last MiB of each
    stream) on, until its end. Leaving does not end it; `cancel` does."""

    def __init__(self, client: Client, params: dict[str, Any]) -> None:
        super().__init__(client, params, [])
        self._params = params

    def __enter__(self) -> AttachedExecution:
        self._open = self._client._follow_attached(self._params)
        return self

    def _leave(self) -> None:
        self._feed.drop()
        self._client._taken()
        self._client._unfollow(self._feed)

    def __del__(self) -> None:
        """It goes on."""
