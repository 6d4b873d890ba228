"""A raw JSON-RPC client on a Unix socket: both framings, descriptors, broken bytes on purpose.

Own code, on purpose: a mistake in the product's framing or client must not cancel itself out here.
"""

from __future__ import annotations

import array
import itertools
import json
import os
import socket
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal

Framing = Literal["lines", "headers"]
Message = dict[str, Any]

# An emulated machine is many times slower.
PATIENCE_S = float(os.environ.get("SANDBOXD_TEST_PATIENCE_S", "30"))


class RpcError(Exception):
    """An error answer, as it came."""

    def __init__(self, error: Message) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: dict[str, Any] = error.get("data") or {}
        self.kind: str | None = self.data.get("kind")
        self.field: str | None = self.data.get("field")
        self.remedy: str | None = self.data.get("remedy")


class Closed(Exception):
    """The daemon ended the connection."""


class Connection:
    """One connection. What arrives is sorted: answers by id, notifications in order, the rest."""

    def __init__(
        self, path: str, *, framing: Framing = "lines", timeout_s: float = PATIENCE_S
    ) -> None:
        self.framing = framing
        self.notifications: list[Message] = []
        self.unaddressed: list[Message] = []  # error answers with id null
        self.batches: list[list[Message]] = []
        self._answers: dict[Any, Message] = {}
        self._ids = itertools.count(1)
        self._buffer = bytearray()
        self._scanned = 0  # bytes that hold no line end: large messages come in many pieces
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout_s)
        self.socket.connect(path)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # sending

    def send_raw(self, data: bytes, *, fds: Iterable[int] = ()) -> None:
        """`data` as it is; descriptors travel with its first byte."""
        passed = array.array("i", fds)
        if passed:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)
            sent = self.socket.sendmsg([data[:1]], [rights])
            data = data[sent:]
        self.socket.sendall(data)

    def send(self, message: Any, *, fds: Iterable[int] = ()) -> None:
        self.send_raw(framed(json.dumps(message).encode(), self.framing), fds=fds)

    def notify(self, method: str, params: Message | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def start(self, method: str, params: Message | None = None, *, fds: Iterable[int] = ()) -> int:
        """Send a request without waiting; its id is for `answer` or `result`."""
        number = next(self._ids)
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        self.send(request, fds=fds)
        return number

    # receiving

    def call(self, method: str, params: Message | None = None, *, fds: Iterable[int] = ()) -> Any:
        return self.result(self.start(method, params, fds=fds))

    def result(self, number: Any) -> Any:
        answer = self.answer(number)
        if "error" in answer:
            raise RpcError(answer["error"])
        return answer["result"]

    def answer(self, number: Any) -> Message:
        """The whole answer to request `number`, whatever comes before it."""
        self.wait_until(lambda: number in self._answers)
        return self._answers.pop(number)

    def has_answered(self, number: Any) -> bool:
        """Whether the answer to request `number` has come already."""
        return number in self._answers

    def notification(self, method: str, **params: Any) -> Message:
        """The params of the first notification of that name whose params hold `params`."""

        def matching() -> list[Message]:
            return [
                n["params"]
                for n in self.notifications
                if n["method"] == method and params.items() <= n["params"].items()
            ]

        self.wait_until(lambda: bool(matching()))
        return matching()[0]

    def output(self, execution_id: str, stream: str = "stdout") -> str:
        """The text of a stream as far as it has come."""
        return "".join(
            n["params"]["data"]
            for n in self.notifications
            if n["method"] == "execution/output"
            and n["params"]["execution_id"] == execution_id
            and n["params"]["stream"] == stream
        )

    def wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._sort(self.receive())

    def receive(self) -> Any:
        """The next message, unsorted. Closed when the daemon has ended the connection."""
        while (body := self._taken()) is None:
            data = self.socket.recv(1 << 16)
            if not data:
                raise Closed(f"the connection ended with {len(self._buffer)} bytes of a message")
            self._buffer += data
        return json.loads(body)

    def _taken(self) -> bytes | None:
        """The first whole message, taken off the buffer; None when it is not all there."""
        if self.framing == "lines":
            start, length = 0, self._buffer.find(b"\n", self._scanned)
            rest = length + 1
        else:
            start, length = content_length(self._buffer)
            rest = start + length
        if length < 0 or len(self._buffer) < rest:
            self._scanned = len(self._buffer)
            return None
        body = bytes(self._buffer[start : start + length])
        del self._buffer[:rest]
        self._scanned = 0
        return body

    def _sort(self, message: Any) -> None:
        if isinstance(message, list):
            self.batches.append(message)
        elif "method" in message:
            self.notifications.append(message)
        elif message["id"] is None:
            self.unaddressed.append(message)
        else:
            self._answers[message["id"]] = message


def framed(body: bytes, framing: Framing) -> bytes:
    if framing == "lines":
        return body + b"\n"
    return b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body


def content_length(buffer: bytearray) -> tuple[int, int]:
    """Where the body of the first message starts, and its length; -1 before the headers ended."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return 0, -1
    name, _, value = bytes(buffer[:end]).partition(b": ")
    assert name == b"Content-Length", name
    return end + 4, int(value)
