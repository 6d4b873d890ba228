"""A connection's bytes: chunks with their descriptors in, whole frames out, in order.

`send` waits while the peer does not read: that is the back-pressure that stops the reading of a
command's output. At most one frame is on its way at a time. Where the socket takes a frame whole,
`send` returns without letting anybody else run: whoever sends in a loop sees to that itself.
"""

from __future__ import annotations

import os
import select
import socket
import sys

import anyio

from sandboxd_proto.framing import Framing, frame

CHUNK = 256 * 1024
_ANCILLARY = socket.CMSG_SPACE(16 * 4) if sys.platform != "win32" else 0


class Channel:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._sending = anyio.Lock()
        self._closed = False
        self.framing = Framing.LINES

    async def receive(self) -> tuple[bytes, list[int]]:
        """What arrived; empty bytes at the end of the connection."""
        while True:
            try:
                data, ancillary, _, _ = self._sock.recvmsg(
                    CHUNK, _ANCILLARY, socket.MSG_CMSG_CLOEXEC
                )
                return data, _descriptors(ancillary)
            except BlockingIOError:
                if not await self._readable():
                    return b"", []
            except OSError:
                return b"", []

    async def _readable(self) -> bool:
        """False when the connection was closed on our side meanwhile."""
        try:
            await anyio.wait_readable(self._sock)
        except (anyio.ClosedResourceError, OSError, ValueError):
            return False
        return True

    async def send(self, body: bytes) -> None:
        """Silently dropped once the connection is closed: there is nobody to tell."""
        data = frame(body, self.framing)
        # Lock.acquire() goes through the event loop even when nobody holds it.
        try:
            self._sending.acquire_nowait()
        except anyio.WouldBlock:
            await self._sending.acquire()
        try:
            await self._send_all(memoryview(data))
        finally:
            self._sending.release()

    async def _send_all(self, view: memoryview) -> None:
        while view and not self._closed:
            try:
                view = view[self._sock.send(view) :]
            except BlockingIOError:
                await self._writable()
            except OSError:
                self.close()

    async def _writable(self) -> None:
        try:
            await anyio.wait_writable(self._sock)
        except (anyio.ClosedResourceError, OSError, ValueError):
            self._closed = True

    def hung_up(self) -> bool:
        """Whether the peer closed both directions (and not only its writing side)."""
        if self._closed:
            return True
        poll = select.poll()
        poll.register(self._sock, 0)
        return bool(poll.poll(0))

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            anyio.notify_closing(self._sock)
            self._sock.close()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = len(data) - len(data) % 4
            fds += [int.from_bytes(data[i : i + 4], sys.byteorder) for i in range(0, whole, 4)]
    for fd in fds:
        os.set_inheritable(fd, False)
    return fds
