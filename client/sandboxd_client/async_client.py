"""The asynchronous client, for asyncio and trio through anyio. It has no task of its own.

The same names and rules as `client.Client`: the task that waits reads the socket for all tasks,
so a streaming execution is slowed when its consumer does not read. Output that must be read for
another task is kept, up to `unread_limit` bytes for each execution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar, Unpack

import anyio

from sandboxd_client import autostart, calls, session_variable
from sandboxd_client.async_execution import AsyncAttachedExecution, AsyncExecution
from sandboxd_client.async_stream import ByteStream, close_forcefully, connect
from sandboxd_client.calls import MethodCall
from sandboxd_client.conversation import (
    UNREAD_LIMIT,
    AttachedFeed,
    Awaited,
    ClientConnection,
    Feed,
    PendingCall,
)
from sandboxd_client.errors import Unread
from sandboxd_client.large_input import input_pieces
from sandboxd_client.option_docs import document_options
from sandboxd_client.options import (
    CheckOptions,
    ExecuteOptions,
    SandboxOptions,
    StreamOptions,
    Word,
    attach_params,
    execute_params,
    passed_descriptors,
)
from sandboxd_client.session_methods import AsyncSessionMethods
from sandboxd_proto.errors import InvalidParams, NotFound
from sandboxd_proto.locations import default_socket
from sandboxd_proto.messages.execute import Detached, ExecuteResult
from sandboxd_proto.messages.execution import Attached, ExecutionList, ExecutionStatus
from sandboxd_proto.messages.sandbox import Forwarded, SandboxCreated, SandboxList
from sandboxd_proto.messages.server import CheckResult, InitializeResult, StatusResult

R = TypeVar("R")
_READ_BYTES = 64 * 1024  # a larger buffer is mapped and unmapped for each read
# A message that was begun must be finished, or the connection is lost for all callers.
_SEND_LIMIT_S = 30.0


class AsyncClient(AsyncSessionMethods):
    """`async with AsyncClient() as client: await client.execute(["make"], preset="read-only")`.

    >>> async def main():
    ...     async with AsyncClient() as client:
    ...         return (await client.execute(["echo", "hello"])).stdout.text
    >>> anyio.run(main)
    'hello\\n'

    Without `socket_path` it is the user's own daemon, which is started if it does not run.
    `autostart`: whether it may be started (by default only without `socket_path`).
    """

    def __init__(
        self,
        socket_path: str | None = None,
        *,
        autostart: bool | None = None,
        unread_limit: int = UNREAD_LIMIT,
        join_session: bool = True,
    ) -> None:
        self._join_session = join_session
        self.socket_path = socket_path or default_socket()
        self._autostart = socket_path is None if autostart is None else autostart
        self._unread_limit = unread_limit
        self._stream: ByteStream | None = None
        self._talk = ClientConnection()
        self._sending = anyio.Lock()
        self._reading = False
        self._waiting: dict[anyio.Event, int] = {}  # of which task

    async def __aenter__(self) -> AsyncClient:
        session = session_variable.from_environment() if self._join_session else None
        if self._autostart:
            await anyio.to_thread.run_sync(self._make_sure_it_runs)
        self._stream = await connect(self.socket_path)
        if session is not None:
            await self.session_attach(*session)
        return self

    def _make_sure_it_runs(self) -> None:
        autostart.open_connection(self.socket_path, client="sandboxd_client").close()

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; the daemon ends its executions that are not detached."""
        self._talk.lose("the client was closed")
        self._wake_all()
        if self._stream is not None:
            await close_forcefully(self._stream)

    # the daemon's methods, by their names on the wire

    async def initialize(self, name: str = "sandboxd_client") -> InitializeResult:
        return await self._ask(calls.initialize(name))

    async def status(self) -> StatusResult:
        return await self._ask(calls.status())

    @document_options(ExecuteOptions)
    async def execute(
        self, argv: Sequence[Word], **options: Unpack[ExecuteOptions]
    ) -> ExecuteResult:
        """Run a command to its end; the result has its output. Cancelled, it ends the command.
        After `timeout` the result's `outcome` is "timeout" (`AsyncBox.run` raises CommandTimeout).
        """
        return await self._ask(calls.execute(argv, options))

    @document_options(ExecuteOptions)
    async def start(self, argv: Sequence[Word], **options: Unpack[ExecuteOptions]) -> Detached:
        """Run a command that survives this connection; `wait` gives its result."""
        return await self._ask(calls.start(argv, options))

    @document_options(StreamOptions, ExecuteOptions)
    def stream(self, argv: Sequence[Word], **options: Unpack[StreamOptions]) -> AsyncExecution:
        """The running command: `async for event in client.stream([…])`, with or without `with`."""
        params = execute_params(argv, options, "stream")
        return AsyncExecution(self, params, passed_descriptors(options))

    def attach(
        self, execution_id: str, *, after: Mapping[str, int] | None = None, stdin: bool = False
    ) -> AsyncAttachedExecution:
        """A command that `start` left running: `async for event in client.attach(id)` yields what
        it prints. `after`: pieces of each stream to leave out, up to this `seq`. `stdin`: write to
        it, too."""
        return AsyncAttachedExecution(self, attach_params(execution_id, after, stdin))

    async def execution_wait(self, execution_id: str) -> ExecuteResult:
        return await self._ask(calls.execution_wait(execution_id))

    wait = execution_wait

    async def execution_status(self, execution_id: str) -> ExecutionStatus:
        """Whether it runs; its result once it has ended (for ten minutes)."""
        return await self._ask(calls.execution_status(execution_id))

    async def execution_list(self, *, ended: bool = False) -> ExecutionList:
        """`ended`: also detached ones that have ended, as long as their results are kept."""
        return await self._ask(calls.execution_list(ended=ended))

    async def execution_write(self, execution_id: str, data: str | bytes) -> None:
        await self._ask(calls.execution_write(execution_id, data))

    async def execution_close_stdin(self, execution_id: str) -> None:
        await self._ask(calls.execution_close_stdin(execution_id))

    async def execution_signal(self, execution_id: str, signal: int | str) -> None:
        await self._ask(calls.execution_signal(execution_id, signal))

    async def execution_resize(self, execution_id: str, rows: int, cols: int) -> None:
        await self._ask(calls.execution_resize(execution_id, rows, cols))

    async def execution_cancel(self, execution_id: str) -> None:
        await self._ask(calls.execution_cancel(execution_id))

    @document_options(CheckOptions)
    async def check(self, **options: Unpack[CheckOptions]) -> CheckResult:
        return await self._ask(calls.check(options))

    @document_options(SandboxOptions)
    async def sandbox_create(self, **options: Unpack[SandboxOptions]) -> SandboxCreated:
        return await self._ask(calls.sandbox_create(options))

    async def sandbox_list(self) -> SandboxList:
        return await self._ask(calls.sandbox_list())

    async def sandbox_destroy(self, sandbox: str) -> None:
        await self._ask(calls.sandbox_destroy(sandbox))

    async def sandbox_forward(
        self, sandbox: str, port: int, listen: Literal["unix", "tcp"] = "unix"
    ) -> Forwarded:
        """Reach a server in a sandbox: `endpoint` is a Unix socket, or with "tcp" a port of
        127.0.0.1, which every user of this machine can connect to."""
        return await self._ask(calls.sandbox_forward(sandbox, port, listen))

    async def sandbox_unforward(self, sandbox: str, forward: str) -> None:
        await self._ask(calls.sandbox_unforward(sandbox, forward))

    async def discover(self) -> dict[str, Any]:
        return await self._ask(calls.discover())

    async def shutdown(self) -> None:
        await self._ask(calls.shutdown())

    # one connection, many callers

    async def _ask(self, asked: MethodCall[R]) -> R:
        call, line = self._talk.request(asked.method, asked.params, asked.result)
        await self._put(line, asked.passed)
        try:
            if asked.input:
                await self._write_input(asked, call)
            await self._until(call)
        except BaseException:
            if not call.done:
                await self._put(self._talk.cancel_request(call))
            raise
        result: R = call.result()
        return result

    async def _write_input(self, asked: MethodCall[Any], call: PendingCall[Any]) -> None:
        """Until it is written, or the command has ended: the answer says how."""
        with suppress(NotFound, InvalidParams):
            for piece in input_pieces(asked):
                if call.done:
                    return
                await self._ask(piece)

    async def _put(self, line: bytes, passed: Sequence[int] = ()) -> None:
        """Send all of it, even when the caller is cancelled meanwhile."""
        if self._stream is None:
            raise RuntimeError("the client is not connected: use `async with`")
        with anyio.move_on_after(_SEND_LIMIT_S, shield=True) as limit:
            try:
                async with self._sending:
                    if passed:
                        # One byte: anyio does not tell how much of a message was sent with them.
                        await self._stream.send_fds(line[:1], list(passed))
                        line = line[1:]
                    await self._stream.send(line)
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._lose("the connection to the daemon failed")
        if limit.cancelled_caught:
            self._lose("the daemon does not read its socket")

    async def _follow(self, params: dict[str, Any], passed: Sequence[int]) -> Feed:
        """Start a streaming execution; its events go to the returned feed."""
        call, line = self._talk.request("execute", params, ExecuteResult)
        feed = Feed(params["execution_id"], call, self._unread_limit)
        self._talk.follow(feed)
        await self._put(line, passed)
        return feed

    async def _follow_attached(self, params: dict[str, Any]) -> Feed:
        """Attach to an execution; its events go to the returned feed."""
        wanted = {"execution_id": params["execution_id"]}
        attached, line = self._talk.request("execution/attach", params, Attached)
        ended, more = self._talk.request("execution/wait", wanted, ExecuteResult)
        feed = AttachedFeed(params["execution_id"], ended, self._unread_limit)
        self._talk.follow(feed)
        try:
            await self._put(line + more)
            await self._until(attached)
            attached.result()
        except BaseException:
            self._unfollow(feed)
            raise
        return feed

    def _unfollow(self, feed: Feed) -> None:
        self._talk.unfollow(feed)
        self._wake_all()

    def _taken(self, feed: Feed, was_full: bool) -> None:
        """A consumer took an event: wake callers that wait for room."""
        if was_full and not feed.full:
            self._wake_all()

    async def _until(self, awaited: Awaited) -> None:
        """Wait until it is ready; reads the socket for all tasks if no other task does."""
        if awaited.ready():
            await anyio.lowlevel.checkpoint()
        try:
            while not awaited.ready() and self._talk.lost is None:
                if self._reading or self._has_to_wait(awaited):
                    await self._sleep(awaited)
                else:
                    await self._read()
        finally:
            self._hand_over()

    async def _sleep(self, awaited: Awaited) -> None:
        event = anyio.Event()
        wake = event.set
        self._waiting[event] = anyio.get_current_task().id
        awaited.wakers += (wake,)
        try:
            await event.wait()
        finally:
            del self._waiting[event]
            awaited.wakers = tuple(other for other in awaited.wakers if other is not wake)

    def _hand_over(self) -> None:
        """Let another waiting task read from now on."""
        if not self._reading:
            for event in self._waiting:
                event.set()
                return

    def _wake_all(self) -> None:
        for event in self._waiting:
            event.set()

    def _lose(self, reason: str) -> None:
        self._talk.lose(reason)
        self._wake_all()

    def _has_to_wait(self, awaited: Awaited) -> bool:
        """Whether a full feed forbids reading; Unread if only this caller could empty it."""
        feed = self._talk.full_feed()
        if feed is None or feed is awaited:
            return False
        if feed.consumer == anyio.get_current_task().id:
            raise Unread(
                f"more than {self._unread_limit} bytes of the execution {feed.execution_id} are "
                "unread, and their reader waits for another answer",
                remedy="read its events in another task, or give it an AsyncClient of its own",
            )
        # The reader may itself wait for an answer: wake it so that it raises Unread.
        for event, task in self._waiting.items():
            if task == feed.consumer:
                event.set()
        return True

    async def _read(self) -> None:
        assert self._stream is not None
        self._reading = True
        try:
            data = await self._stream.receive(_READ_BYTES)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            data = b""
        finally:
            self._reading = False
        self._talk.receive(data)
        if self._talk.lost is not None:
            self._wake_all()
