"""The blocking client. Usable from many threads; it starts none of its own.

One connection carries any number of requests. The thread that waits reads the socket for all
threads; output of a streaming execution is read when its consumer asks for it, so a consumer that
does not read slows the command. What must be read past it, because another thread waits for an
answer, is kept up to `unread_limit` bytes an execution; above that everybody on this connection
waits for the consumer. Give a stream that is read slowly a `Client` of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from sandboxd_client import __version__, autostart, descriptors, transport
from sandboxd_client.conversation import UNREAD_LIMIT, Awaited, Call, Conversation, Feed
from sandboxd_client.errors import Unread
from sandboxd_client.execution import Execution
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

if TYPE_CHECKING:
    from _socket import socket

R = TypeVar("R")
_READ_BYTES = 256 * 1024


class Client:
    """`with Client() as client: client.execute(["make", "test"], preset="read-only")`."""

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
        self._sock = self._connect()
        self._talk = Conversation()
        self._turn = threading.Condition()
        self._sending = threading.Lock()
        self._reading = False
        self._waiting: set[tuple[int, Awaited]] = set()

    def _connect(self) -> socket:
        if self._autostart:
            return autostart.open_connection(self.socket_path, client="sandboxd_client")
        return transport.connect(self.socket_path)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; what it runs and did not detach is ended by the daemon."""
        with self._turn:
            self._talk.lose("the client was closed")
            self._turn.notify_all()
        with suppress(OSError):
            self._sock.shutdown(2)  # wakes a thread that is reading
        self._sock.close()

    # the daemon's methods, by their names on the wire

    def initialize(self, name: str = "sandboxd_client") -> InitializeResult:
        params = {"client": {"name": name, "version": __version__}}
        return self._ask("initialize", params, InitializeResult)

    def status(self) -> StatusResult:
        return self._ask("status", {}, StatusResult)

    def execute(self, argv: Sequence[str], **options: Unpack[ExecuteOptions]) -> ExecuteResult:
        """Run a command to its end; the result has its output. Ctrl-C here ends the command too."""
        params = execute_params(argv, options)
        return self._ask("execute", params, ExecuteResult, passed(options))

    def start(self, argv: Sequence[str], **options: Unpack[ExecuteOptions]) -> Detached:
        """Run a command that survives this connection; `wait` gives its result."""
        params = {**execute_params(argv, options), "detach": True}
        return self._ask("execute", params, Detached, passed(options))

    def stream(self, argv: Sequence[str], **options: Unpack[StreamOptions]) -> Execution:
        """A context manager: the running command, whose events can be iterated over."""
        return Execution(self, execute_params(argv, options), passed(options))

    def execution_wait(self, execution_id: str) -> ExecuteResult:
        return self._ask("execution/wait", {"execution_id": execution_id}, ExecuteResult)

    wait = execution_wait

    def execution_list(self) -> ExecutionList:
        return self._ask("execution/list", {}, ExecutionList)

    def execution_write(self, execution_id: str, data: str | bytes) -> None:
        self._ask("execution/write", write_params(execution_id, data), Any)

    def execution_close_stdin(self, execution_id: str) -> None:
        self._ask("execution/close_stdin", {"execution_id": execution_id}, Any)

    def execution_signal(self, execution_id: str, signal: int | str) -> None:
        self._ask("execution/signal", {"execution_id": execution_id, "signal": signal}, Any)

    def execution_resize(self, execution_id: str, rows: int, cols: int) -> None:
        params = {"execution_id": execution_id, "rows": rows, "cols": cols}
        self._ask("execution/resize", params, Any)

    def execution_cancel(self, execution_id: str) -> None:
        self._ask("execution/cancel", {"execution_id": execution_id}, Any)

    def check(self, **options: Unpack[CheckOptions]) -> CheckResult:
        return self._ask("manifest/check", plain(options), CheckResult)

    def sandbox_create(self, **options: Unpack[SandboxOptions]) -> SandboxCreated:
        return self._ask("sandbox/create", plain(options), SandboxCreated)

    def sandbox_list(self) -> SandboxList:
        return self._ask("sandbox/list", {}, SandboxList)

    def sandbox_destroy(self, sandbox: str) -> None:
        self._ask("sandbox/destroy", {"sandbox": sandbox}, Any)

    def discover(self) -> dict[str, Any]:
        return self._ask("rpc.discover", {}, dict[str, Any])

    def shutdown(self) -> None:
        self._ask("shutdown", {}, Any)

    # one connection, many callers

    def _ask(
        self, method: str, params: Any, result_type: type[R] | Any, passed: Sequence[int] = ()
    ) -> R:
        call = self._send(method, params, result_type, passed)
        try:
            self._until(call)
        except BaseException:
            if not call.done:
                self._abandon(call)
            raise
        result: R = call.result()
        return result

    def _send(self, method: str, params: Any, result_type: Any, passed: Sequence[int]) -> Call[Any]:
        with self._turn:
            call, line = self._talk.request(method, params, result_type)
        self._put(line, passed)
        return call

    def _put(self, line: bytes, passed: Sequence[int] = ()) -> None:
        try:
            with self._sending:
                sent = descriptors.send(self._sock, line, passed) if passed else 0
                self._sock.sendall(line[sent:] if sent else line)
        except OSError as error:
            with self._turn:
                self._talk.lose(f"the connection to the daemon broke: {error.strerror}")
                self._turn.notify_all()

    def _abandon(self, call: Call[Any]) -> None:
        with self._turn:
            line = self._talk.cancel_request(call)
        self._put(line)

    def _follow(self, params: dict[str, Any], passed: Sequence[int]) -> Feed:
        """Start a streaming execution whose events go to the feed that is answered."""
        with self._turn:
            call, line = self._talk.request("execute", params, ExecuteResult)
            feed = Feed(params["execution_id"], call, self._unread_limit)
            self._talk.follow(feed)
        self._put(line, passed)
        return feed

    def _unfollow(self, feed: Feed) -> None:
        with self._turn:
            self._talk.unfollow(feed)
            self._turn.notify_all()

    def _taken(self) -> None:
        """A consumer took an event: whoever waits for room may go on."""
        with self._turn:
            self._turn.notify_all()

    def _until(self, awaited: Awaited) -> None:
        """Wait until it is ready, reading for every thread when no other does."""
        me = (threading.get_ident(), awaited)
        with self._turn:
            self._waiting.add(me)
            try:
                while not awaited.ready() and self._talk.lost is None:
                    if self._reading or self._has_to_wait(awaited):
                        self._turn.wait()
                    else:
                        self._read()
            finally:
                self._waiting.discard(me)
                self._turn.notify_all()

    def _has_to_wait(self, awaited: Awaited) -> bool:
        """Whether a full feed forbids reading; Unread for the caller that alone could empty it."""
        feed = self._talk.full_feed()
        if feed is None or feed is awaited:
            return False
        if feed.consumer == threading.get_ident():
            raise Unread(
                f"more than {self._unread_limit} bytes of the execution {feed.execution_id} are "
                "unread, and the one who reads them waits for another answer",
                remedy="read its events in another thread, or give it a Client of its own",
            )
        return True

    def _read(self) -> None:
        self._reading = True
        self._turn.release()
        data = b""
        try:
            data = self._sock.recv(_READ_BYTES)
        except OSError:
            data = b""
        except BaseException:
            self._turn.acquire()
            self._reading = False
            raise
        self._turn.acquire()
        self._reading = False
        self._talk.receive(data)
        self._turn.notify_all()
