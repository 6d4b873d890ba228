"""One client: frames in, many requests in flight, answers as they finish, nothing left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain, islice
from typing import Any

import anyio
import msgspec

from sandboxd.rpc.call import Call
from sandboxd.rpc.channel import Channel
from sandboxd.rpc.descriptors import PendingDescriptors
from sandboxd.rpc.dispatch import Later, Request, failure, read_request, readable_id
from sandboxd.rpc.service import Service
from sandboxd.supervisor.execution import Execution
from sandboxd_proto.errors import (
    Busy,
    InternalError,
    InvalidRequest,
    ParseError,
    SandboxdError,
    Unauthorized,
)
from sandboxd_proto.framing import BadFrame, Frame, FrameDecoder
from sandboxd_proto.wire import decode_json, encode

log = logging.getLogger(__name__)
MAX_IN_FLIGHT = 512
MAX_BATCH = 1000
FRAMES_A_TURN = 64
# What ends or unblocks a command is taken also when a connection has too much in flight.
ALWAYS_TAKEN = {"execution/cancel", "execution/signal", "execution/close_stdin"}
HALF_CLOSED_POLL_S = 0.02

Answer = Callable[[Any], None]  # given None, it says nothing


class Connection:
    """Owned by the task that runs `serve`; when that ends, everything of this client ends.

    Frames are handled where they are read, in the event loop's callback. What takes longer gets a
    task; answers that the client does not take at once do too.
    """

    def __init__(self, channel: Channel, service: Service, refused: Unauthorized | None) -> None:
        self.channel = channel
        self._service = service
        self._refused = refused
        self._decoder = FrameDecoder()
        self._frames: Iterator[Frame | BadFrame] = iter(())
        self._received = 0
        self.descriptors = PendingDescriptors()
        self._in_flight = 0
        self._unsaid = 0
        self._no_more = anyio.Event()
        channel.on_close = self._no_more.set
        self._executions_by_request: dict[Any, Execution] = {}

    async def serve(self) -> None:
        try:
            async with anyio.create_task_group() as self._tasks:
                self.channel.listen(self._take_in)
                await self._no_more.wait()
                await self._answer_half_closed()
                # The client is gone: what it left running ends, and so do its requests.
                self._service.supervisor.abandon(self)
                self.channel.close()
                self._tasks.cancel_scope.cancel()
        finally:
            self._no_more.set()
            self._service.supervisor.abandon(self)
            self.channel.close()
            self.descriptors.close()

    def _take_in(self, data: bytes, fds: list[int]) -> None:
        if not data:
            self._no_more.set()
            return
        self._received += len(data)
        self.descriptors.add(self._received, fds)
        self._frames = iter(self._decoder.feed(data))
        self._work()

    def _work(self) -> None:
        """A client that sends a lot at once must not keep the others waiting."""
        if self._no_more.is_set():
            return
        try:
            for item in islice(self._frames, FRAMES_A_TURN):
                if self._decoder.framing is not None:
                    self.channel.framing = self._decoder.framing
                if not self._take(item):
                    self._end()
                    return
            more = next(self._frames, None)
        except Exception:
            log.exception("a connection failed")
            self._end()
            return
        if more is not None:
            self._frames = chain((more,), self._frames)
            self.channel.pause()
            asyncio.get_running_loop().call_soon(self._work)
        elif self._unsaid <= MAX_IN_FLIGHT:
            self.channel.listen(self._take_in)

    def _end(self) -> None:
        self.channel.pause()
        self._no_more.set()

    async def _answer_half_closed(self) -> None:
        """A client that only closed its writing side (socat does) still reads its answers."""
        # A half-closed socket is always readable, so its full end cannot be waited for.
        while (self._in_flight or self._unsaid) and not self.channel.hung_up():  # noqa: ASYNC110
            await anyio.sleep(HALF_CLOSED_POLL_S)

    def _take(self, item: Frame | BadFrame) -> bool:
        """False when the connection is to be ended."""
        if isinstance(item, BadFrame):
            error = ParseError(item.reason) if item.fatal else InvalidRequest(item.reason)
            self._say(failure(None, error))
            return not item.fatal
        try:
            value = decode_json(item.body)
        except SandboxdError as error:
            self._say(failure(None, error))
            return True
        if self._refused is not None:
            self._say(failure(readable_id(value), self._refused))
            return False
        if isinstance(value, list):
            self._batch(value, item.offset)
        else:
            self._start(value, item.offset, self._say)
        return True

    def _say(self, answer: Any) -> None:
        """A client that does not read its answers can still send what ends or unblocks its
        commands; but when too many answers wait, nothing more is read."""
        if answer is None:
            return
        rest = self.channel.send_at_once(_encoded(answer))
        if rest is not None:
            self._unsaid += 1
            self._tasks.start_soon(self._say_later, rest)
            if self._unsaid > MAX_IN_FLIGHT:
                self.channel.pause()

    async def _say_later(self, rest: Callable[[], Awaitable[None]]) -> None:
        try:
            await rest()
        finally:
            self._unsaid -= 1
            if self._unsaid == MAX_IN_FLIGHT:
                self._work()

    def _batch(self, values: list[Any], offset: int) -> None:
        """One array when all have finished; nothing for notifications only."""
        if not values or len(values) > MAX_BATCH:
            problem = "empty" if not values else f"longer than {MAX_BATCH}"
            self._say(failure(None, InvalidRequest(f"the batch is {problem}")))
            return
        answers: list[Any] = []
        left = len(values)

        def collect(answer: Any) -> None:
            nonlocal left
            left -= 1
            if answer is not None:
                answers.append(answer)
            if left == 0 and answers:
                self._say(answers)

        for value in values:
            self._start(value, offset, collect)

    def _start(self, value: Any, offset: int, answer: Answer) -> None:
        """When it returns later frames may refer to what this one made."""
        try:
            request = read_request(value)
        except SandboxdError as error:
            answer(failure(readable_id(value), error))
            return
        if request.method.startswith("$/") and request.id is msgspec.UNSET:
            self._protocol_note(request)
            answer(None)
            return
        most = 2 * MAX_IN_FLIGHT if request.method in ALWAYS_TAKEN else MAX_IN_FLIGHT
        if self._in_flight >= most:
            busy = Busy(f"{MAX_IN_FLIGHT} requests of this connection are in flight already")
            answer(None if request.id is msgspec.UNSET else failure(request.id, busy))
            return
        call = Call(self._service, self, offset, request.id)
        result = self._service.dispatcher.answer(request, call)
        if isinstance(result, Later):
            self._in_flight += 1
            mine = self._executions_by_request.get(request.id)
            self._tasks.start_soon(self._finish, request, result, answer, mine)
        else:
            answer(result)

    async def _finish(
        self, request: Request, rest: Later, answer: Answer, mine: Execution | None
    ) -> None:
        try:
            answer(await self._service.dispatcher.finish(request, rest))
        finally:
            if mine is not None and self._executions_by_request.get(request.id) is mine:
                del self._executions_by_request[request.id]
            self._in_flight -= 1

    def runs(self, request_id: Any, execution: Execution) -> None:
        """`$/cancelRequest` with this id ends that execution, as long as its request is open."""
        if request_id is not msgspec.UNSET and request_id is not None:
            self._executions_by_request[request_id] = execution

    def _protocol_note(self, request: Request) -> None:
        if request.method != "$/cancelRequest" or not isinstance(request.params, dict):
            return
        wanted = request.params.get("id")
        if isinstance(wanted, str | int | float) and not isinstance(wanted, bool):
            execution = self._executions_by_request.get(wanted)
            if execution is not None:
                execution.cancel()


def _encoded(answer: Any) -> bytes:
    """One answer that cannot be said must not end the others."""
    try:
        return encode(answer)
    except Exception:
        log.exception("an answer could not be encoded")
        asked = answer.get("id") if isinstance(answer, dict) else None
        return encode(failure(asked, InternalError("the answer could not be encoded")))
