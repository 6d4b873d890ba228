"""One client's connection: reads frames, runs requests concurrently, sends answers as they
finish."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import anyio
import msgspec

from sandboxd import event_loop
from sandboxd.policy.plan_cache import Key, MadePlan
from sandboxd.rpc.answers.large import with_escaped_output
from sandboxd.rpc.dispatch import Later, Request, RunAgain, failure, read_request, readable_id
from sandboxd.rpc.fd_passing import PendingDescriptors
from sandboxd.rpc.notifications.listener import Notice
from sandboxd.rpc.notifications.subscriptions import (
    MAX_SUBSCRIPTIONS,
    MAX_SUBSCRIPTIONS_IN_ALL,
    Subscription,
)
from sandboxd.rpc.open_requests import OpenRequests
from sandboxd.rpc.outbox import Outbox, encode_answer
from sandboxd.rpc.request_context import RequestContext
from sandboxd.rpc.service import Service
from sandboxd.rpc.transport.interface import Transport
from sandboxd.supervisor.approvals.display import escape_hidden
from sandboxd.supervisor.execution.execution import Execution
from sandboxd_proto.errors import (
    Busy,
    InvalidRequest,
    ParseError,
    SandboxdError,
    Unauthorized,
)
from sandboxd_proto.framing import BadFrame, Frame, FrameDecoder
from sandboxd_proto.messages.approval import Requester
from sandboxd_proto.wire import decode_json

log = logging.getLogger(__name__)
MAX_IN_FLIGHT = 512
MAX_BATCH = 1000
MAX_FOLLOWS = 64
MAX_FOLLOWS_IN_ALL = 256
REQUESTS_A_TURN = 8  # of one connection in one callback; those of a batch count one by one
# They change nothing and take long to answer: above the limit a connection waits for one of them.
QUESTIONS = {"status", "manifest/check", "audit/query", "audit/verify"}
MAX_QUESTIONS = 8  # of one connection at a time
# They end or unblock a command, so they get twice the limit.
CONTROL_METHODS = {"execution/cancel", "execution/signal", "execution/close_stdin"}
HALF_CLOSED_POLL_S = 0.02
EXECUTIONS_END_S = 30.0  # of a connection that has ended: they were cancelled

# Called with the answer (None: none is sent), and with what is to be called once it was sent.
SendAnswer = Callable[[Any, Callable[[], None]], None]
# The error of a peer that is refused; called once, when the first bytes have arrived.
CheckPeer = Callable[[], Unauthorized | None]
# After a request. False: end the connection. RunAgain: wait, then go on with the same request.
Step = bool | RunAgain


class Connection:
    """Owned by the task that runs `serve`; when that ends, everything of this client ends.

    Frames are handled in the event loop's callback that reads them. Handlers that wait get a task,
    and so do answers that the client does not take at once.
    """

    def __init__(
        self, channel: Transport, service: Service, check_peer: CheckPeer, pid: int | None
    ) -> None:
        self.channel = channel
        self.role: Literal["worker", "approver"] | None = None
        self.requester = Requester(name="unknown", pid=pid)
        self.former_sessions: set[str] = set()
        self._subscriptions: dict[str, Subscription] = {}
        self._follows = 0
        self._service = service
        self._unchecked_peer: CheckPeer | None = check_peer
        self._peer_error: Unauthorized | None = None
        self._decoder = FrameDecoder()
        self._steps: Iterator[Step] = iter(())
        self._received = 0
        self._half_frame = 0  # bytes of it
        self.descriptors = PendingDescriptors()
        self._in_flight = 0
        self._questions = 0
        self._question_ended = anyio.Event()
        self.is_gone = False
        self._ended = anyio.Event()
        channel.on_close = self._note_end
        self._outbox = Outbox(
            channel, lambda *work: self._tasks.start_soon(*work), self._handle_some
        )
        self.open_requests = OpenRequests()
        self._executing = event_loop.OwnedTasks(self._fail)

    async def serve(self) -> None:
        try:
            async with anyio.create_task_group() as self._tasks:
                self.channel.listen(self._receive)
                try:
                    await self._ended.wait()
                    await self._answer_half_closed()
                finally:
                    self._end()  # a client that goes on sending would add tasks for ever
                # The client has left: end its executions and its requests.
                self._service.supervisor.abandon(self)
                self.channel.close()
                self._tasks.cancel_scope.cancel()
        finally:
            self._note_end()
            self._service.supervisor.abandon(self)
            self._service.left(self)
            self._service.subscriptions -= len(self._subscriptions)
            self._service.follows -= self._follows
            self.channel.close()
            self.descriptors.close()
            with anyio.CancelScope(shield=True):
                await self._executing.end(EXECUTIONS_END_S)

    def _receive(self, data: bytes, fds: list[int]) -> None:
        if not data:
            self._note_end()
            return
        self._service.supervisor.catch_up()
        self._received += len(data)
        if fds:
            self.descriptors.add(self._received, fds)
        try:
            if self._unchecked_peer is not None:
                self._check_peer(self._unchecked_peer)
            frames = self._decoder.feed(data)
            held, self._half_frame = self._half_frame, self._decoder.held
            changed = held != self._half_frame
            if changed and not self._service.partial_frames.hold(self, self._half_frame):
                self._refuse_half_frame()
                return
            self._steps = self._handle_frames(frames)
        except Exception:
            log.exception("a connection failed")
            self._end()
            return
        self._handle_some()

    def _refuse_half_frame(self) -> None:
        log.warning("a connection was ended: all of them hold too many bytes of incomplete frames")
        busy = Busy("the daemon holds too many incomplete messages", remedy="send it again later")
        self._send_answer(failure(None, busy))
        self._end()

    def _check_peer(self, check: CheckPeer) -> None:
        self._unchecked_peer = None
        self._peer_error = check()
        if self._peer_error is not None:
            log.warning("refused a peer: %s", self._peer_error.message)

    def _handle_frames(self, frames: Iterable[Frame | BadFrame]) -> Iterator[Step]:
        """Handles a request at each step."""
        for item in frames:
            if self._decoder.framing is not None:
                self.channel.framing = self._decoder.framing
            yield from self._handle_frame(item)

    def _handle_some(self) -> None:
        """Handle one request; more of them if no other connection waits for its turn."""
        self._handle(1 if self._service.turns.crowded else REQUESTS_A_TURN)

    def _handle_turn(self) -> None:
        self._handle(REQUESTS_A_TURN)

    def _handle(self, most: int) -> None:
        if self.is_gone:
            return
        try:
            for number, step in enumerate(self._steps, 1):
                if isinstance(step, RunAgain):
                    self.channel.pause()
                    self._tasks.start_soon(self._continue_after, step)
                    return
                if not step:
                    self._end()
                    return
                if self._outbox.is_full:
                    self.channel.pause()  # the outbox calls `_handle_some` again
                    return
                if number >= most:
                    self.channel.pause()
                    self._service.turns.wait(self._handle_turn)
                    return
        except Exception:
            log.exception("a connection failed")
            self._end()
            return
        if not self._outbox.is_full:
            self.channel.listen(self._receive)

    async def _continue_after(self, held: RunAgain) -> None:
        with suppress(SandboxdError):  # the handler runs again, and raises the same error
            await held.wait()
        self._handle_some()

    def _fail(self, error: BaseException) -> None:
        log.error("a connection failed", exc_info=error)
        self._end()

    def _end(self) -> None:
        self.channel.pause()
        self._note_end()

    def _note_end(self) -> None:
        self.is_gone = True
        self._ended.set()

    async def _answer_half_closed(self) -> None:
        """A client that only closed its writing side (socat does) still reads its answers."""
        # A half-closed socket is always readable, so the event loop cannot wait for its full close.
        while (self._in_flight or self._outbox.unsent_answers) and not self.channel.hung_up():  # noqa: ASYNC110
            await anyio.sleep(HALF_CLOSED_POLL_S)

    def _handle_frame(self, item: Frame | BadFrame) -> Iterator[Step]:
        if isinstance(item, BadFrame):
            kind = ParseError if item.fatal else InvalidRequest
            self._send_answer(failure(None, kind(item.reason, remedy=item.remedy)))
            yield not item.fatal
            return
        try:
            value = decode_json(item.body)
        except SandboxdError as error:
            self._send_answer(failure(None, error))
            yield True
            return
        if self._peer_error is not None:
            self._send_answer(failure(readable_id(value), self._peer_error))
            yield False
        elif isinstance(value, list):
            yield from self._handle_batch(value, item.offset)
        else:
            yield from self._handle_request(value, item.offset, self._send_answer)

    def _send_answer(self, answer: Any, answered: Callable[[], None] | None = None) -> None:
        """Send an answer. Requests are still read while answers wait, so that a client can end its
        commands; reading stops when too many wait."""
        if answer is not None and not self.channel.closed:
            self._outbox.answer(encode_answer(answer))
        if answered is not None:
            answered()

    def notify(self, method: str, params: Any) -> None:
        """Send a notification. The connection of a client that does not read them is ended: the
        backlog must be bounded, and the client reads the present state when it connects again."""
        if self.is_gone:
            return
        if not self._outbox.notify(encode_answer(Notice(method=method, params=params))):
            log.warning("a client does not read its notifications: its connection is ended")
            self._end()

    async def send_notice(self, method: str, params: Any) -> None:
        """Waits for a client that reads slowly."""
        await self.channel.send(encode_answer(Notice(method=method, params=params)))

    def name_client(self, name: str) -> None:
        self.requester = Requester(name=escape_hidden(name[:200]), pid=self.requester.pid)

    def become_approver(self) -> None:
        """The role stays until the connection ends."""
        self.role = "approver"
        before = self._service.admission.sessions.leave(self)
        if before is not None:
            self.former_sessions |= {before.id}
        self._service.hub.approvers.add(self)
        self._service.admission.approvals.approver_came()

    def subscribe(self, subscription: Subscription, call: RequestContext) -> None:
        """Busy above the limits. The common limit does not apply to approvers."""
        full = self.role != "approver" and self._service.subscriptions >= MAX_SUBSCRIPTIONS_IN_ALL
        if full or len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            raise Busy(
                "there are too many subscriptions" if full
                else f"this connection has {MAX_SUBSCRIPTIONS} subscriptions already",
                remedy="end one with events/unsubscribe",
            )  # fmt: skip
        self._service.subscriptions += 1
        self._subscriptions[subscription.id] = subscription
        call.after_answer(lambda: self._tasks.start_soon(subscription.run))

    def follow(self, work: Callable[[], Awaitable[None]], call: RequestContext) -> None:
        """Run `work` beside the connection once `call` was answered, until one of them ends."""
        if self._follows >= MAX_FOLLOWS:
            raise Busy(
                f"this connection is attached to {MAX_FOLLOWS} executions already",
                remedy="use another connection",
            )
        if self._service.follows >= MAX_FOLLOWS_IN_ALL:
            raise Busy(
                f"clients are attached {MAX_FOLLOWS_IN_ALL} times already",
                remedy="use execution/wait, or try again later",
            )
        self._follows += 1
        self._service.follows += 1
        call.after_answer(lambda: self._tasks.start_soon(self._run_follower, work))

    async def _run_follower(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self._follows -= 1
            self._service.follows -= 1

    def unsubscribe(self, subscription_id: str) -> bool:
        found = self._subscriptions.pop(subscription_id, None)
        if found is not None:
            self._service.subscriptions -= 1
            found.scope.cancel()
        return found is not None

    def _handle_batch(self, values: list[Any], offset: int) -> Iterator[Step]:
        """The answer is one array, sent when all have finished; none if all are notifications."""
        if not values or len(values) > MAX_BATCH:
            problem = "empty" if not values else f"longer than {MAX_BATCH}"
            self._send_answer(failure(None, InvalidRequest(f"the batch is {problem}")))
            yield True
            return
        answers: list[Any] = []
        answered: list[Callable[[], None]] = []

        def collect(answer: Any, then: Callable[[], None]) -> None:
            answered.append(then)
            if answer is not None:
                answers.append(answer)
            if len(answered) == len(values):
                self._send_answer(answers or None)
                for one in answered:
                    one()

        for value in values:
            yield from self._handle_request(value, offset, collect)

    def _handle_request(self, value: Any, offset: int, answer: SendAnswer) -> Iterator[Step]:
        prepared: dict[Key, MadePlan | Exception] = {}
        while (held := self._try_request(value, offset, answer, prepared)) is not None:
            yield held
        yield True

    def _try_request(
        self, value: Any, offset: int, answer: SendAnswer, prepared: dict[Key, MadePlan | Exception]
    ) -> RunAgain | None:
        """Start a request. After it returned None, later frames may refer to what it made."""
        try:
            request = read_request(value)
        except SandboxdError as error:
            answer(failure(readable_id(value), error), _nothing)
            return None
        if request.method.startswith("$/") and request.id is msgspec.UNSET:
            if request.method == "$/cancelRequest":
                self.open_requests.cancel(request.params)
            answer(None, _nothing)
            return None
        most = 2 * MAX_IN_FLIGHT if request.method in CONTROL_METHODS else MAX_IN_FLIGHT
        if self._in_flight >= most:
            busy = Busy(f"{most} requests of this connection are in flight already")
            answer(None if request.id is msgspec.UNSET else failure(request.id, busy), _nothing)
            return None
        is_question = request.method in QUESTIONS
        if is_question and self._questions >= MAX_QUESTIONS:
            return RunAgain(self._question_ended.wait)
        call = RequestContext(self._service, self, offset, request.id, prepared)
        result = self._service.dispatcher.answer(request, call)
        if isinstance(result, RunAgain):
            return result
        if isinstance(result, Later):
            self._in_flight += 1
            self._questions += is_question
            mine = self.open_requests.execution(request.id)
            rest = partial(self._finish_request, call, request, result, answer, mine)
            if result.ends_with_execution:
                self._executing.start(rest())
            else:
                self._tasks.start_soon(rest)
        else:
            answer(result, call.answered)
        return None

    async def _finish_request(
        self, call: RequestContext, request: Request, rest: Later, answer: SendAnswer,
        mine: Execution | None,
    ) -> None:  # fmt: skip
        try:
            result = await self._service.dispatcher.finish(request, rest)
            try:
                result = await with_escaped_output(result)
            except MemoryError:
                full = Busy("the daemon has no memory for the answer", remedy="ask again later")
                result = failure(request.id, full)
            answer(result, call.answered)
        finally:
            self.open_requests.close(request.id, mine)
            self._in_flight -= 1
            if request.method in QUESTIONS:
                self._questions -= 1
                self._question_ended.set()
                self._question_ended = anyio.Event()


def _nothing() -> None:
    """Of a request that was not begun."""
