"""The messages of one connection, without I/O: routes answers to calls and output to executions.

Both clients add a way to read and write. Neither has a background reader: a caller that waits reads
the socket for all callers until its own answer has arrived. When no caller waits, nothing is read,
so back-pressure slows the command whose output is not consumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from sandboxd_client.errors import ConnectionLost
from sandboxd_client.jsontext import LineBuffer, LineTooLong
from sandboxd_proto import methods, wire
from sandboxd_proto.errors import InvalidParams, SandboxdError, from_wire
from sandboxd_proto.framing import FRAME_LIMIT
from sandboxd_proto.messages.notifications import DenialSeen, Exited, Output, Started

R = TypeVar("R")
Event = Started | Output | DenialSeen | Exited
# Output that arrived while the connection was read for something else, for each execution.
UNREAD_LIMIT = 16 * 1024 * 1024
MOST_NOTICES = 1024
# What only the stream of its execution is for.
_STREAMED = ("execution/started", "execution/output", "execution/denial", "execution/exited")


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
    execution_id: str | None = None


class Awaited:
    """Something that a caller can wait for. The `wakers` are called when it may be ready."""

    wakers: tuple[Callable[[], None], ...] = ()

    def ready(self) -> bool:
        raise NotImplementedError

    def woken(self) -> None:
        for wake in self.wakers:
            wake()


class PendingCall(Awaited, Generic[R]):
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
            self._value = wire.decode(message.result, self._type)
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

    def __init__(
        self, execution_id: str, call: PendingCall[Any], limit: int = UNREAD_LIMIT
    ) -> None:
        self.execution_id = execution_id
        self.call = call
        call.feed = self
        self.consumer: object = None  # the consumer of the last event
        self._limit = limit
        self._events: deque[Event] = deque()
        self._size = 0
        self._dropped = False

    @property
    def full(self) -> bool:
        return self._size > self._limit

    @property
    def ended(self) -> bool:
        """No further event comes."""
        return self.call.done

    def ready(self) -> bool:
        return bool(self._events) or self.ended

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
        """Drop all further events: the consumer has left."""
        self._dropped = True
        self._events.clear()
        self._size = 0


class Notice(msgspec.Struct, frozen=True):
    """A notification that belongs to no stream: of sessions, approvals, budgets, events, progress.
    `missed`: how many before it were dropped, because too many waited to be taken."""

    method: str
    params: Any
    missed: int = 0


class Notices(Awaited):
    """The notices that were not taken yet, oldest first."""

    def __init__(self) -> None:
        self._kept: deque[Notice] = deque()
        self._missed = 0

    def ready(self) -> bool:
        return bool(self._kept)

    def put(self, notice: Notice) -> None:
        self._kept.append(notice)
        if len(self._kept) > MOST_NOTICES:
            self._kept.popleft()
            self._missed += 1
        self.woken()

    def take(self) -> Notice | None:
        if not self._kept:
            return None
        missed, self._missed = self._missed, 0
        return msgspec.structs.replace(self._kept.popleft(), missed=missed)


class AttachedFeed(Feed):
    """Of an execution that another request started. `call` waits for its result, whose answer
    may arrive before the last events."""

    _seen_end = False

    @property
    def ended(self) -> bool:
        return self.call.failed or (self.call.done and self._seen_end)

    def put(self, event: Event) -> None:
        self._seen_end = isinstance(event, Exited)
        super().put(event)

    def lose(self) -> None:
        self._seen_end = True
        self.woken()


class ClientConnection:
    def __init__(self) -> None:
        self.lost: ConnectionLost | None = None
        self.notices = Notices()
        self._next_id = 1
        self._calls: dict[int | str | None, PendingCall[Any]] = {}
        self._feeds: dict[str, Feed] = {}
        self._lines = LineBuffer()
        self._decoder = msgspec.json.Decoder(_Message)
        self._events: dict[str, msgspec.json.Decoder[Any]] = {
            item.name: msgspec.json.Decoder(item.params) for item in methods.NOTIFICATIONS
        }
        self._target = msgspec.json.Decoder(_Target)

    # outgoing

    def request(self, method: str, params: Any, result_type: Any) -> tuple[PendingCall[Any], bytes]:
        """A call to wait for, and the bytes to send."""
        if self.lost is not None:
            raise self.lost
        call: PendingCall[Any] = PendingCall(self._next_id, result_type)
        self._next_id += 1
        line = self._line({"id": call.id, "method": method, "params": params})
        self._calls[call.id] = call
        return call, line

    def cancel_request(self, call: PendingCall[Any]) -> bytes:
        """Drop the call; returns the bytes that cancel its execution."""
        self._calls.pop(call.id, None)
        return self._line({"method": "$/cancelRequest", "params": {"id": call.id}})

    def follow(self, feed: Feed) -> None:
        self._feeds[feed.execution_id] = feed

    def unfollow(self, feed: Feed) -> None:
        self._feeds.pop(feed.execution_id, None)

    @staticmethod
    def _line(message: dict[str, Any]) -> bytes:
        """InvalidParams for what the daemon could not read: its answer would have no id."""
        try:
            line = wire.encode_strictly({"jsonrpc": "2.0", **message}) + b"\n"
        except UnicodeEncodeError as error:
            raise InvalidParams(
                f"the request has text that is not Unicode ({error.object[error.start]!r})",
                remedy="send bytes as base64, or decode them with errors='replace'",
            ) from None
        if len(line) > FRAME_LIMIT:
            raise InvalidParams(
                f"the request has {len(line)} bytes; the limit is {FRAME_LIMIT}",
                remedy="pass large input as stdin, or write files in pieces",
            )
        return line

    # incoming

    def receive(self, data: bytes) -> None:
        """Process received bytes, in any chunks; b"" is the end. A loss fails all calls."""
        if not data:
            return self.lose("the daemon closed the connection")
        try:
            for line in self._lines.feed(data):
                self._message(line)
        except (LineTooLong, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.lose(f"protocol violation by the daemon: {error}")
        return None

    def lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = ConnectionLost(reason)
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.fail(self.lost)
        for feed in self._feeds.values():
            if isinstance(feed, AttachedFeed):
                feed.lose()

    def next_notice(self) -> Notice | None:
        """None if there is none yet. ConnectionLost after the last one."""
        notice = self.notices.take()
        if notice is None and self.lost is not None:
            raise self.lost
        return notice

    def full_feed(self) -> Feed | None:
        """One whose consumer must take events before more is read."""
        return next((feed for feed in self._feeds.values() if feed.full), None)

    def _message(self, line: bytes) -> None:
        message = self._decoder.decode(line)
        if message.method is None:
            self._answer(message)
            return
        decoder = self._events.get(message.method)
        if decoder is None:
            return
        feed = None
        if message.method.startswith("execution/") and message.method != "execution/progress":
            feed = self._feeds.get(self._target.decode(message.params).execution_id or "")
        if feed is not None:
            feed.put(decoder.decode(message.params))
        elif message.method not in _STREAMED:
            self.notices.put(Notice(message.method, decoder.decode(message.params)))

    def _answer(self, message: _Message) -> None:
        if message.id is not None:
            call = self._calls.pop(message.id, None)
            if call is not None:
                call.answer(message)
            return
        # The daemon could not read a request and cannot tell which: each call may be that one.
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.answer(message)
