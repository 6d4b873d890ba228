"""The asynchronous client, for asyncio and trio through anyio. It has no task of its own.

The same names and rules as `client.Client`: the task that waits reads the socket for all tasks,
so a streaming execution is slowed when its consumer does not read. What must be read past it for
another task is kept up to `unread_limit` bytes an execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypeVar, Unpack

import anyio
from anyio.abc import SocketAttribute, UNIXSocketStream

from sandboxd_client import __version__, autostart, transport
from sandboxd_client.async_execution import AsyncExecution
from sandboxd_client.conversation import UNREAD_LIMIT, Awaited, Conversation, Feed
from sandboxd_client.errors import Unread
from sandboxd_client.options import (
    CheckOptions,
    ExecuteOptions,
    SandboxOptions,
    StreamOptions,
    execute_params,
    passed,
    plain,
    write_params,
)
from sandboxd_proto.locations import default_socket
from sandboxd_proto.messages.execute import Detached, ExecuteResult
from sandboxd_proto.messages.execution import ExecutionList
from sandboxd_proto.messages.sandbox import SandboxCreated, SandboxList
from sandboxd_proto.messages.server import CheckResult, InitializeResult, StatusResult

R = TypeVar("R")
_READ_BYTES = 256 * 1024
# A message that was begun must be finished, or the connection is lost for everybody on it.
_SEND_LIMIT_S = 30.0


class AsyncClient:
    """`async with AsyncClient() as client: await client.execute(["make"], preset="read-only")`."""

    def __init__(
        self,
        socket_path: str | None = None,
        *,
        autostart: bool = False,
        unread_limit: int = UNREAD_LIMIT,
    ) -> None:
        self.socket_path = socket_path or default_socket()
        self._autostart = autostart
        self._unread_limit = unread_limit
        self._stream: UNIXSocketStream | None = None
        self._talk = Conversation()
        self._sending = anyio.Lock()
        self._reading = False
        self._waiting: dict[anyio.Event, int] = {}  # of which task

    async def __aenter__(self) -> AsyncClient:
        if self._autostart:
            await anyio.to_thread.run_sync(self._make_sure_it_runs)
        transport.check_folder(self.socket_path)
        try:
            stream = await anyio.connect_unix(self.socket_path)
        except OSError as error:
            raise transport.not_running(self.socket_path, error) from None
        try:
            transport.check_peer(stream.extra(SocketAttribute.raw_socket), self.socket_path)
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
        self._stream = stream
        return self

    def _make_sure_it_runs(self) -> None:
        autostart.open_connection(self.socket_path, client="sandboxd_client").close()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the connection; what it runs and did not detach is ended by the daemon."""
        self._talk.lose("the client was closed")
        self._wake_all()
        if self._stream is not None:
            await anyio.aclose_forcefully(self._stream)

    # the daemon's methods, by their names on the wire

    async def initialize(self, name: str = "sandboxd_client") -> InitializeResult:
        params = {"client": {"name": name, "version": __version__}}
        return await self._ask("initialize", params, InitializeResult)

    async def status(self) -> StatusResult:
        return await self._ask("status", {}, StatusResult)

    async def execute(
        self, argv: Sequence[str], **options: Unpack[ExecuteOptions]
    ) -> ExecuteResult:
        """Run a command to its end; the result has its output. Cancelled, it ends the command."""
        params = execute_params(argv, options)
        return await self._ask("execute", params, ExecuteResult, passed(options))

    async def start(self, argv: Sequence[str], **options: Unpack[ExecuteOptions]) -> Detached:
        """Run a command that survives this connection; `wait` gives its result."""
        params = {**execute_params(argv, options), "detach": True}
        return await self._ask("execute", params, Detached, passed(options))

    def stream(self, argv: Sequence[str], **options: Unpack[StreamOptions]) -> AsyncExecution:
        """A context manager: the running command, whose events can be iterated over."""
        return AsyncExecution(self, execute_params(argv, options), passed(options))

    async def execution_wait(self, execution_id: str) -> ExecuteResult:
        return await self._ask("execution/wait", {"execution_id": execution_id}, ExecuteResult)

    wait = execution_wait

    async def execution_list(self) -> ExecutionList:
        return await self._ask("execution/list", {}, ExecutionList)

    async def execution_write(self, execution_id: str, data: str | bytes) -> None:
        await self._ask("execution/write", write_params(execution_id, data), Any)

    async def execution_close_stdin(self, execution_id: str) -> None:
        await self._ask("execution/close_stdin", {"execution_id": execution_id}, Any)

    async def execution_signal(self, execution_id: str, signal: int | str) -> None:
        await self._ask("execution/signal", {"execution_id": execution_id, "signal": signal}, Any)

    async def execution_resize(self, execution_id: str, rows: int, cols: int) -> None:
        params = {"execution_id": execution_id, "rows": rows, "cols": cols}
        await self._ask("execution/resize", params, Any)

    async def execution_cancel(self, execution_id: str) -> None:
        await self._ask("execution/cancel", {"execution_id": execution_id}, Any)

    async def check(self, **options: Unpack[CheckOptions]) -> CheckResult:
        return await self._ask("manifest/check", plain(options), CheckResult)

    async def sandbox_create(self, **options: Unpack[SandboxOptions]) -> SandboxCreated:
        return await self._ask("sandbox/create", plain(options), SandboxCreated)

    async def sandbox_list(self) -> SandboxList:
        return await self._ask("sandbox/list", {}, SandboxList)

    async def sandbox_destroy(self, sandbox: str) -> None:
        await self._ask("sandbox/destroy", {"sandbox": sandbox}, Any)

    async def discover(self) -> dict[str, Any]:
        return await self._ask("rpc.discover", {}, dict[str, Any])

    async def shutdown(self) -> None:
        await self._ask("shutdown", {}, Any)

    # one connection, many callers

    async def _ask(
        self, method: str, params: Any, result_type: type[R] | Any, passed: Sequence[int] = ()
    ) -> R:
        call, line = self._talk.request(method, params, result_type)
        await self._put(line, passed)
        try:
            await self._until(call)
        except BaseException:
            if not call.done:
                await self._put(self._talk.cancel_request(call))
            raise
        result: R = call.result()
        return result

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
                self._lose("the connection to the daemon broke")
        if limit.cancelled_caught:
            self._lose("the daemon does not read what it is sent")

    async def _follow(self, params: dict[str, Any], passed: Sequence[int]) -> Feed:
        """Start a streaming execution whose events go to the feed that is answered."""
        call, line = self._talk.request("execute", params, ExecuteResult)
        feed = Feed(params["execution_id"], call, self._unread_limit)
        self._talk.follow(feed)
        await self._put(line, passed)
        return feed

    def _unfollow(self, feed: Feed) -> None:
        self._talk.unfollow(feed)
        self._wake_all()

    def _taken(self, feed: Feed, was_full: bool) -> None:
        """A consumer took an event: whoever waits for room may go on."""
        if was_full and not feed.full:
            self._wake_all()

    async def _until(self, awaited: Awaited) -> None:
        """Wait until it is ready, reading for every task when no other does."""
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
        """Somebody else reads from now on, if somebody waits."""
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
        """Whether a full feed forbids reading; Unread for the caller that alone could empty it."""
        feed = self._talk.full_feed()
        if feed is None or feed is awaited:
            return False
        if feed.consumer == anyio.get_current_task().id:
            raise Unread(
                f"more than {self._unread_limit} bytes of the execution {feed.execution_id} are "
                "unread, and the one who reads them waits for another answer",
                remedy="read its events in another task, or give it an AsyncClient of its own",
            )
        # The one who could read may itself wait for an answer: it must find out.
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
