"""One connection's messages, without I/O: which answer belongs to whom, which output to which run.

Both clients are this plus a way to read and write. Neither has a background reader: whoever waits
for something reads for everybody until it has what it waits for. So when nobody waits, nothing is
read, the daemon feels it, and the command whose output is not wanted now is slowed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from sandboxd_client.errors import ConnectionLost
from sandboxd_client.lines import LineBuffer, LineTooLong
from sandboxd_proto import methods, wire
from sandboxd_proto.errors import SandboxdError, from_wire
from sandboxd_proto.messages.notifications import DenialSeen, Exited, Output, Started

R = TypeVar("R")
Event = Started | Output | DenialSeen | Exited
# Output that arrived while the connection was read for something else, for each execution.
UNREAD_LIMIT = 16 * 1024 * 1024


class _Error(msgspec.Struct):
    code: int = -32603
    message: str = ""
    data: Any = None


class _Message(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: _Error | None = None


class _Target(msgspec.Struct):
    execution_id: str


class Awaited:
    """Something that a caller can wait for. The `wakers` are called when it may be ready."""

    wakers: tuple[Callable[[], None], ...] = ()

    def ready(self) -> bool:
        raise NotImplementedError

    def woken(self) -> None:
        for wake in self.wakers:
            wake()


class Call(Awaited, Generic[R]):
    """A request in flight."""

    def __init__(self, id: int, result_type: Any) -> None:
        self.id = id
        self.feed: Feed | None = None
        self._type = result_type
        self._value: R | None = None
        self._error: SandboxdError | None = None
        self.done = False

    def ready(self) -> bool:
        return self.done

    @property
    def failed(self) -> bool:
        return self._error is not None

    def result(self) -> R:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # None only where R is None

    def fail(self, error: SandboxdError) -> None:
        self._error = error
        self._end()

    def answer(self, message: _Message) -> None:
        if message.error is not None:
            error = message.error
            return self.fail(from_wire(error.code, error.message, error.data))
        try:
            self._value = msgspec.json.decode(message.result, type=self._type)
        except msgspec.MsgspecError as error:
            return self.fail(SandboxdError(f"the daemon's answer cannot be read: {error}"))
        return self._end()

    def _end(self) -> None:
        self.done = True
        self.woken()
        if self.feed is not None:
            self.feed.woken()


class Feed(Awaited):
    """The events of one streaming execution that its consumer has not taken yet."""

    def __init__(self, execution_id: str, call: Call[Any], limit: int = UNREAD_LIMIT) -> None:
        self.execution_id = execution_id
        self.call = call
        call.feed = self
        self.consumer: object = None  # who took the last event
        self._limit = limit
        self._events: deque[Event] = deque()
        self._size = 0
        self._dropped = False

    @property
    def full(self) -> bool:
        return self._size > self._limit

    def ready(self) -> bool:
        return bool(self._events) or self.call.done

    def put(self, event: Event) -> None:
        if self._dropped:
            return
        self._events.append(event)
        if isinstance(event, Output):
            self._size += len(event.data)
        self.woken()

    def take(self) -> Event | None:
        """The next event; None when there is none at the moment."""
        if not self._events:
            return None
        event = self._events.popleft()
        if isinstance(event, Output):
            self._size -= len(event.data)
        return event

    def drop(self) -> None:
        """Nobody will take events any more; those still to come are forgotten."""
        self._dropped = True
        self._events.clear()
        self._size = 0


class Conversation:
    def __init__(self) -> None:
        self.lost: ConnectionLost | None = None
        self._next_id = 1
        self._calls: dict[int | str | None, Call[Any]] = {}
        self._feeds: dict[str, Feed] = {}
        self._lines = LineBuffer()
        self._decoder = msgspec.json.Decoder(_Message)
        self._events: dict[str, msgspec.json.Decoder[Any]] = {
            item.name: msgspec.json.Decoder(item.params) for item in methods.NOTIFICATIONS
        }
        self._target = msgspec.json.Decoder(_Target)

    # outwards

    def request(self, method: str, params: Any, result_type: Any) -> tuple[Call[Any], bytes]:
        """A call to wait for, and the bytes to send."""
        if self.lost is not None:
            raise self.lost
        call: Call[Any] = Call(self._next_id, result_type)
        self._next_id += 1
        line = self._line({"id": call.id, "method": method, "params": params})
        self._calls[call.id] = call
        return call, line

    def cancel_request(self, call: Call[Any]) -> bytes:
        """Forget the call, and the bytes that tell the daemon to end what it runs."""
        self._calls.pop(call.id, None)
        return self._line({"method": "$/cancelRequest", "params": {"id": call.id}})

    def follow(self, feed: Feed) -> None:
        self._feeds[feed.execution_id] = feed

    def unfollow(self, feed: Feed) -> None:
        self._feeds.pop(feed.execution_id, None)

    @staticmethod
    def _line(message: dict[str, Any]) -> bytes:
        return wire.encode({"jsonrpc": "2.0", **message}) + b"\n"

    # inwards

    def receive(self, data: bytes) -> None:
        """What arrived, in any cuts; b"" is the end. A loss is told to all calls, not raised."""
        if not data:
            return self.lose("the daemon closed the connection")
        try:
            for line in self._lines.feed(data):
                self._message(line)
        except (LineTooLong, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.lose(f"the daemon sent something that cannot be read: {error}")
        return None

    def lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = ConnectionLost(reason)
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.fail(self.lost)

    def full_feed(self) -> Feed | None:
        """One whose consumer must take events before more is read."""
        return next((feed for feed in self._feeds.values() if feed.full), None)

    def _message(self, line: bytes) -> None:
        message = self._decoder.decode(line)
        if message.method is None:
            call = self._calls.pop(message.id, None)
            if call is not None:
                call.answer(message)
            return
        decoder = self._events.get(message.method)
        if decoder is None:
            return
        feed = self._feeds.get(self._target.decode(message.params).execution_id)
        if feed is not None:
            feed.put(decoder.decode(message.params))
