"""One client: frames in, many requests in flight, answers as they finish, nothing left behind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup

from sandboxd.rpc.call import Call
from sandboxd.rpc.channel import Channel
from sandboxd.rpc.descriptors import PendingDescriptors
from sandboxd.rpc.dispatch import Request, failure, read_request, readable_id
from sandboxd.rpc.service import Service
from sandboxd.supervisor.execution import Execution
from sandboxd_proto.errors import Busy, InvalidRequest, ParseError, SandboxdError, Unauthorized
from sandboxd_proto.framing import BadFrame, Frame, FrameDecoder
from sandboxd_proto.wire import decode_json, encode

log = logging.getLogger(__name__)
MAX_IN_FLIGHT = 512
MAX_BATCH = 1000
FRAMES_A_TURN = 64
# What ends or unblocks a command is taken also when a connection has too much in flight.
ALWAYS_TAKEN = {"execution/cancel", "execution/signal", "execution/close_stdin"}
HALF_CLOSED_POLL_S = 0.02

Answer = Callable[[Any], None]


class Connection:
    """Owned by the task that runs `serve`; when that ends, everything of this client ends."""

    def __init__(self, channel: Channel, service: Service, refused: Unauthorized | None) -> None:
        self.channel = channel
        self._service = service
        self._refused = refused
        self._decoder = FrameDecoder()
        self._received = 0
        self._descriptors = PendingDescriptors()
        self._in_flight = 0
        self._executions_by_request: dict[Any, Execution] = {}

    async def serve(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                await self._read(tasks)
                await self._answer_half_closed()
                # The client is gone: what it left running ends, and so do its requests.
                self._service.supervisor.abandon(self)
                self.channel.close()
                tasks.cancel_scope.cancel()
        finally:
            self._service.supervisor.abandon(self)
            self.channel.close()
            self._descriptors.close()

    async def _read(self, tasks: TaskGroup) -> None:
        while True:
            data, fds = await self.channel.receive()
            if not data:
                return
            self._received += len(data)
            self._descriptors.add(self._received, fds)
            # A client that never stops sending must not keep the others waiting.
            await anyio.lowlevel.checkpoint()
            for index, item in enumerate(self._decoder.feed(data), 1):
                if index % FRAMES_A_TURN == 0:
                    await anyio.lowlevel.checkpoint()
                if self._decoder.framing is not None:
                    self.channel.framing = self._decoder.framing
                if not await self._take(item, tasks):
                    return

    async def _answer_half_closed(self) -> None:
        """A client that only closed its writing side (socat does) still reads its answers."""
        # A half-closed socket is always readable, so its full end cannot be waited for.
        while self._in_flight and not self.channel.hung_up():  # noqa: ASYNC110
            await anyio.sleep(HALF_CLOSED_POLL_S)

    async def _take(self, item: Frame | BadFrame, tasks: TaskGroup) -> bool:
        """False when the connection is to be ended."""
        if isinstance(item, BadFrame):
            error = ParseError(item.reason) if item.fatal else InvalidRequest(item.reason)
            await self._send(failure(None, error))
            return not item.fatal
        try:
            value = decode_json(item.body)
        except SandboxdError as error:
            await self._send(failure(None, error))
            return True
        if self._refused is not None:
            await self._send(failure(readable_id(value), self._refused))
            return False
        if isinstance(value, list):
            await self._batch(value, item.offset, tasks)
        else:
            await self._start(value, item.offset, tasks, self._send)
        return True

    async def _send(self, answer: Any) -> None:
        await self.channel.send(encode(answer))

    async def _batch(self, values: list[Any], offset: int, tasks: TaskGroup) -> None:
        """One array when all have finished; nothing for notifications only."""
        if not values or len(values) > MAX_BATCH:
            problem = "empty" if not values else f"longer than {MAX_BATCH}"
            await self._send(failure(None, InvalidRequest(f"the batch is {problem}")))
            return
        answers: list[Any] = []
        left = len(values)

        async def collect(answer: Any) -> None:
            nonlocal left
            left -= 1
            if answer is not None:
                answers.append(answer)
            if left == 0 and answers:
                await self._send(answers)

        for value in values:
            await self._start(value, offset, tasks, collect, silent=collect)

    async def _start(
        self, value: Any, offset: int, tasks: TaskGroup, answer: Any, silent: Any = None
    ) -> None:
        """Returns once later frames may refer to what this one made."""
        try:
            request = read_request(value)
        except SandboxdError as error:
            await answer(failure(readable_id(value), error))
            return
        if request.method.startswith("$/") and request.id is msgspec.UNSET:
            self._protocol_note(request)
            if silent is not None:
                await silent(None)
            return
        if self._in_flight >= MAX_IN_FLIGHT and request.method not in ALWAYS_TAKEN:
            busy = Busy(f"{MAX_IN_FLIGHT} requests of this connection are in flight already")
            if request.id is not msgspec.UNSET:
                await answer(failure(request.id, busy))
            elif silent is not None:
                await silent(None)
            return
        self._in_flight += 1
        registered = anyio.Event()
        tasks.start_soon(self._handle, request, offset, registered, answer, silent)
        if request.method == "execute":
            await registered.wait()

    def _protocol_note(self, request: Request) -> None:
        if request.method != "$/cancelRequest" or not isinstance(request.params, dict):
            return
        wanted = request.params.get("id")
        if isinstance(wanted, str | int | float) and not isinstance(wanted, bool):
            execution = self._executions_by_request.get(wanted)
            if execution is not None:
                execution.cancel()

    async def _handle(
        self, request: Request, offset: int, registered: anyio.Event, answer: Any, silent: Any
    ) -> None:
        key = request.id
        mine: Execution | None = None

        def note(execution: Execution | None) -> None:
            nonlocal mine
            mine = execution
            if execution is not None and key is not msgspec.UNSET and key is not None:
                self._executions_by_request[key] = execution
            registered.set()

        call = Call(
            service=self._service,
            connection=self,
            registered=note,
            descriptors=lambda: self._descriptors.take(offset),
            request_id=key,
        )
        try:
            result = await self._service.dispatcher.answer(request, call)
            registered.set()
            if result is not None:
                await answer(result)
            elif silent is not None:
                await silent(None)
        finally:
            self._in_flight -= 1
            registered.set()
            if mine is not None and self._executions_by_request.get(key) is mine:
                del self._executions_by_request[key]
