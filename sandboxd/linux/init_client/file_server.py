"""The daemon's half of the file server in a sandbox (init/command/file_server.c).

One request at a time over a socket. What the server answers is treated as hostile: a command of the
same user can kill or stop it, so every answer is bounded in size and time.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from enum import IntEnum

import anyio
import msgspec

from sandboxd import event_loop
from sandboxd.types import Command, Process, Sandbox, Stdio
from sandboxd_proto.errors import SandboxUnavailable

NO_MODE = 0xFFFFFFFF
READ_MAX = 8 << 20
ANSWER_MAX = 10 << 20
ANSWER_S = 60.0
PIECE = 1 << 18
_STATUS = struct.Struct("<BQIIq")
_LENGTH = struct.Struct("<I")


class FileOperation(IntEnum):
    READ = 1
    WRITE = 2
    STAT = 3
    LIST = 4
    MKDIR = 5
    REMOVE = 6
    RENAME = 7
    COPY = 8
    REALPATH = 9
    CONNECT = 10


class FileFailed(Exception):
    """The kernel's answer to the operation inside."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.errno = number


class ServerEnded(SandboxUnavailable):
    """A command killed it, or it does not answer."""


class NotSent(ServerEnded):
    """It ended before the request was sent: the request can be sent to another one."""


class Status(msgspec.Struct, frozen=True):
    """`kind` is the file type of st_mode, shifted down by 12 bits."""

    kind: int
    size: int
    mode: int
    uid: int
    mtime_ms: int


class AnswerReader:
    """Reads the fields of an answer; SandboxUnavailable if it is malformed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, code: str) -> int:
        size = struct.calcsize("<" + code)
        return int(struct.unpack("<" + code, self._take(size))[0])

    def string(self) -> str:
        return os.fsdecode(self._take(self.number("I")))

    def status(self) -> Status:
        return Status(*_STATUS.unpack(self._take(_STATUS.size)))

    def rest(self) -> bytes:
        return self._take(len(self._data) - self._at)

    def __len__(self) -> int:
        return len(self._data)

    def _take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) != size:
            raise SandboxUnavailable("protocol violation by the sandbox's file server")
        self._at += size
        return piece


def string(text: str) -> bytes:
    encoded = os.fsencode(text)
    return struct.pack("<I", len(encoded)) + encoded


class FileServer:
    """One process of a sandbox. Made by `start`; its owner calls `close`."""

    def __init__(self, process: Process, sock: socket.socket) -> None:
        self._process = process
        self._sock = sock
        self._lock = anyio.Lock(fast_acquire=True)
        self._broken = False

    @property
    def alive(self) -> bool:
        """Whether it can take a request. An idle server sends nothing, so readable means ended."""
        if self._broken:
            return False
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return self._lock.locked()

    async def request(
        self, operation: FileOperation, fields: bytes, limit_s: float = ANSWER_S
    ) -> AnswerReader:
        """FileFailed with the kernel's error; SandboxUnavailable if the server is gone."""
        answer, _ = await self._exchange(operation, fields, limit_s)
        return answer

    async def connect(self, port: int) -> socket.socket:
        """A connection to a port of the sandbox's own loopback."""
        _, descriptors = await self._exchange(FileOperation.CONNECT, struct.pack("<I", port))
        _close_all(descriptors[1:])
        try:
            connection = socket.socket(fileno=descriptors[0])
        except (IndexError, OSError):
            _close_all(descriptors[:1])
            raise SandboxUnavailable("protocol violation by the sandbox's file server") from None
        connection.setblocking(False)
        return connection

    async def _exchange(
        self, operation: FileOperation, fields: bytes, limit_s: float = ANSWER_S
    ) -> tuple[AnswerReader, list[int]]:
        descriptors: list[int] = []
        async with self._lock:
            if self._broken:
                raise NotSent("the file server of the sandbox ended", remedy="send it again")
            timer = event_loop.call_later(limit_s, self._give_up)
            try:
                await self._send(struct.pack("<IB", len(fields) + 1, operation) + fields)
                answer = await self._receive(
                    descriptors if operation is FileOperation.CONNECT else None
                )
            except BaseException as error:
                # The rest of a half-read answer would be parsed as the next one.
                self._broken = True
                self._process.kill()
                _close_all(descriptors)
                if isinstance(error, OSError | anyio.ClosedResourceError):
                    raise ServerEnded(
                        "the file server of the sandbox ended or does not answer",
                        remedy="send the request again",
                    ) from None
                raise
            finally:
                timer.cancel()
        (number,) = struct.unpack("<I", answer[:4])
        if number:
            _close_all(descriptors)
            raise FileFailed(number)
        return AnswerReader(answer[4:]), descriptors

    async def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._sock.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._sock)

    async def _receive(self, descriptors: list[int] | None) -> bytes:
        """One answer, without its length. Received descriptors are appended to `descriptors`;
        without it the kernel drops them."""
        held = bytearray()
        size = 4
        while len(held) < size:
            try:
                if descriptors is None:
                    piece = self._sock.recv(PIECE)
                else:
                    flags = socket.MSG_CMSG_CLOEXEC
                    piece, fds, _, _ = socket.recv_fds(self._sock, PIECE, 4, flags)
                    descriptors += fds
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
                continue
            if not piece:
                raise ConnectionResetError
            held += piece
            if len(held) >= 4:
                size = 4 + _LENGTH.unpack_from(held)[0]
                if not 8 <= size <= ANSWER_MAX or len(held) > size:
                    raise SandboxUnavailable("protocol violation by the sandbox's file server")
        return bytes(memoryview(held)[4:])

    def _give_up(self) -> None:
        """It does not answer: the request that waits ends now."""
        self._process.kill()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._broken = True
        self._process.kill()
        self._process.close()
        anyio.notify_closing(self._sock)  # a request that waits for an answer ends now
        self._sock.close()


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


async def start(sandbox: Sandbox, command: Command) -> FileServer:
    """`command` says who runs it and where; its argv is not executed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    with theirs:
        try:
            ends = Stdio(theirs.fileno(), theirs.fileno(), theirs.fileno())
            process = await sandbox.spawn(command, ends)
        except BaseException:
            ours.close()
            raise
    try:
        await process.started()
    except BaseException:
        process.close()
        ours.close()
        raise
    return FileServer(process, ours)
