"""The blocking client. Usable from many threads; it starts none of its own.

One connection carries any number of requests. The thread that waits reads the socket for all
threads; output of a streaming execution is read when its consumer asks for it, so a consumer that
does not read slows the command. Output that must be read because another thread waits for an answer
is kept, up to `unread_limit` bytes for each execution; above that all callers on this connection
wait for the consumer. Use a separate `Client` for a stream that is read slowly.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from sandboxd_client import autostart, caller, calls, session_variable, transport
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
from sandboxd_client.execution import AttachedExecution, Execution
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
from sandboxd_client.session_methods import SessionMethods
from sandboxd_proto.errors import InvalidParams, NotFound
from sandboxd_proto.locations import default_socket
from sandboxd_proto.messages.execute import Detached, ExecuteResult
from sandboxd_proto.messages.execution import Attached, ExecutionList, ExecutionStatus
from sandboxd_proto.messages.sandbox import Forwarded, SandboxCreated, SandboxList
from sandboxd_proto.messages.server import CheckResult, InitializeResult, StatusResult

if TYPE_CHECKING:
    from _socket import socket

R = TypeVar("R")
_READ_BYTES = 64 * 1024  # a larger buffer is mapped and unmapped for each read


class Client(SessionMethods):
    """`with Client() as client: client.execute(["make", "test"], preset="read-only")`.

    >>> with Client() as client:
    ...     client.execute(["echo", "hello"]).stdout.text
    'hello\\n'

    Without `socket_path` it is the user's own daemon, which is started if it does not run.
    `autostart`: whether it may be started (by default only without `socket_path`).
    `join_session`: belong to the session that $SANDBOXD_SESSION names, if it does.
    """

    def __init__(
        self,
        socket_path: str | None = None,
        *,
        autostart: bool | None = None,
        unread_limit: int = UNREAD_LIMIT,
        join_session: bool = True,
    ) -> None:
        self.socket_path = socket_path or default_socket()
        self._autostart = socket_path is None if autostart is None else autostart
        self._unread_limit = unread_limit
        session = session_variable.from_environment() if join_session else None
        self._sock = self._connect()
        self._talk = ClientConnection()
        self._turn = threading.Condition()
        self._sending = threading.Lock()
        self._reading = False
        self._waiting: set[tuple[int, Awaited]] = set()
        self._attach(session)

    def _attach(self, session: tuple[str, str] | None) -> None:
        if session is not None:
            try:
                self.session_attach(*session)
            except BaseException:
                self.close()
                raise

    def _connect(self) -> socket:
        if self._autostart:
            return autostart.open_connection(self.socket_path, client="sandboxd_client")
        return transport.connect(self.socket_path)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the daemon ends its executions that are not detached."""
        with self._turn:
            self._talk.lose("the client was closed")
            self._turn.notify_all()
        with suppress(OSError):
            self._sock.shutdown(2)  # wakes a thread that is reading
        self._sock.close()

    # the daemon's methods, by their names on the wire

    def initialize(self, name: str = "sandboxd_client") -> InitializeResult:
        return self._ask(calls.initialize(name))

    def status(self) -> StatusResult:
        return self._ask(calls.status())

    @document_options(ExecuteOptions)
    def execute(self, argv: Sequence[Word], **options: Unpack[ExecuteOptions]) -> ExecuteResult:
        """Run a command to its end; the result has its output. Ctrl-C here ends the command too.
        After `timeout` the result's `outcome` is "timeout" (`Box.run` raises CommandTimeout).

        >>> with Client() as client:
        ...     result = client.execute(["cat"], stdin="typed", preset="read-only")
        >>> result.outcome, result.exit_code, result.stdout.text
        ('exited', 0, 'typed')
        """
        return self._ask(calls.execute(argv, options))

    @document_options(ExecuteOptions)
    def start(self, argv: Sequence[Word], **options: Unpack[ExecuteOptions]) -> Detached:
        """Run a command that survives this connection; `wait` gives its result."""
        return self._ask(calls.start(argv, options))

    @document_options(StreamOptions, ExecuteOptions)
    def stream(self, argv: Sequence[Word], **options: Unpack[StreamOptions]) -> Execution:
        """The running command: `for event in client.stream([…])`, with or without `with`.

        >>> with Client() as client, client.stream(["echo", "now"]) as running:
        ...     [event.text for event in running if isinstance(event, Output)]
        ['now\\n']
        """
        return Execution(self, execute_params(argv, options, "stream"), passed_descriptors(options))

    def attach(
        self, execution_id: str, *, after: Mapping[str, int] | None = None, stdin: bool = False
    ) -> AttachedExecution:
        """A command that `start` left running: `for event in client.attach(id)` yields what it
        prints. `after`: pieces of each stream to leave out, up to this `seq`. `stdin`: write to
        it, too."""
        return AttachedExecution(self, attach_params(execution_id, after, stdin))

    def execution_wait(self, execution_id: str) -> ExecuteResult:
        return self._ask(calls.execution_wait(execution_id))

    wait = execution_wait

    def execution_status(self, execution_id: str) -> ExecutionStatus:
        """Whether it runs; its result once it has ended (for ten minutes)."""
        return self._ask(calls.execution_status(execution_id))

    def execution_list(self, *, ended: bool = False) -> ExecutionList:
        """`ended`: also detached ones that have ended, as long as their results are kept."""
        return self._ask(calls.execution_list(ended=ended))

    def execution_write(self, execution_id: str, data: str | bytes) -> None:
        self._ask(calls.execution_write(execution_id, data))

    def execution_close_stdin(self, execution_id: str) -> None:
        self._ask(calls.execution_close_stdin(execution_id))

    def execution_signal(self, execution_id: str, signal: int | str) -> None:
        self._ask(calls.execution_signal(execution_id, signal))

    def execution_resize(self, execution_id: str, rows: int, cols: int) -> None:
        self._ask(calls.execution_resize(execution_id, rows, cols))

    def execution_cancel(self, execution_id: str) -> None:
        self._ask(calls.execution_cancel(execution_id))

    @document_options(CheckOptions)
    def check(self, **options: Unpack[CheckOptions]) -> CheckResult:
        return self._ask(calls.check(options))

    @document_options(SandboxOptions)
    def sandbox_create(self, **options: Unpack[SandboxOptions]) -> SandboxCreated:
        return self._ask(calls.sandbox_create(options))

    def sandbox_list(self) -> SandboxList:
        return self._ask(calls.sandbox_list())

    def sandbox_destroy(self, sandbox: str) -> None:
        self._ask(calls.sandbox_destroy(sandbox))

    def sandbox_forward(
        self, sandbox: str, port: int, listen: Literal["unix", "tcp"] = "unix"
    ) -> Forwarded:
        """Reach a server in a sandbox: `endpoint` is a Unix socket, or with "tcp" a port of
        127.0.0.1, which every user of this machine can connect to."""
        return self._ask(calls.sandbox_forward(sandbox, port, listen))

    def sandbox_unforward(self, sandbox: str, forward: str) -> None:
        self._ask(calls.sandbox_unforward(sandbox, forward))

    def discover(self) -> dict[str, Any]:
        return self._ask(calls.discover())

    def shutdown(self) -> None:
        self._ask(calls.shutdown())

    # one connection, many callers

    def _ask(self, asked: MethodCall[R]) -> R:
        call = self._send(asked)
        try:
            if asked.input:
                self._write_input(asked, call)
            self._until(call)
        except BaseException:
            if not call.done:
                self._abandon(call)
            raise
        result: R = call.result()
        return result

    def _write_input(self, asked: MethodCall[Any], call: PendingCall[Any]) -> None:
        """Until it is written, or the command has ended: the answer says how."""
        with suppress(NotFound, InvalidParams):
            for piece in input_pieces(asked):
                if call.done:
                    return
                self._ask(piece)

    def _send(self, asked: MethodCall[Any]) -> PendingCall[Any]:
        with self._turn:
            call, line = self._talk.request(asked.method, asked.params, asked.result)
        self._put(line, asked.passed)
        return call

    def _put(self, line: bytes, passed: Sequence[int] = ()) -> None:
        try:
            with self._sending:
                sent = caller.send(self._sock, line, passed) if passed else 0
                self._sock.sendall(line[sent:] if sent else line)
        except OSError as error:
            with self._turn:
                self._talk.lose(f"the connection to the daemon failed: {error.strerror}")
                self._turn.notify_all()

    def _abandon(self, call: PendingCall[Any]) -> None:
        with self._turn:
            line = self._talk.cancel_request(call)
        self._put(line)

    def _follow(self, params: dict[str, Any], passed: Sequence[int]) -> Feed:
        """Start a streaming execution; its events go to the returned feed."""
        with self._turn:
            call, line = self._talk.request("execute", params, ExecuteResult)
            feed = Feed(params["execution_id"], call, self._unread_limit)
            self._talk.follow(feed)
        self._put(line, passed)
        return feed

    def _follow_attached(self, params: dict[str, Any]) -> Feed:
        """Attach to an execution; its events go to the returned feed."""
        wanted = {"execution_id": params["execution_id"]}
        with self._turn:
            attached, line = self._talk.request("execution/attach", params, Attached)
            ended, more = self._talk.request("execution/wait", wanted, ExecuteResult)
            feed = AttachedFeed(params["execution_id"], ended, self._unread_limit)
            self._talk.follow(feed)
        try:
            self._put(line + more)
            self._until(attached)
            attached.result()
        except BaseException:
            self._unfollow(feed)
            raise
        return feed

    def _unfollow(self, feed: Feed) -> None:
        with self._turn:
            self._talk.unfollow(feed)
            self._turn.notify_all()

    def _taken(self) -> None:
        """A consumer took an event: wake callers that wait for room."""
        with self._turn:
            self._turn.notify_all()

    def _until(self, awaited: Awaited) -> None:
        """Wait until it is ready; reads the socket for all threads if no other thread does."""
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
        """Whether a full feed forbids reading; Unread if only this caller could empty it."""
        feed = self._talk.full_feed()
        if feed is None or feed is awaited:
            return False
        if feed.consumer == threading.get_ident():
            raise Unread(
                f"more than {self._unread_limit} bytes of the execution {feed.execution_id} are "
                "unread, and their reader waits for another answer",
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
