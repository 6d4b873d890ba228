"""A connection's bytes: chunks with their descriptors in, whole frames out, in order.

`send` waits while the peer does not read: that is the back-pressure that stops the reading of a
command's output. At most one frame is on its way at a time. Where the socket takes a frame whole,
`send` may return without yielding; loops must checkpoint.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import anyio.lowlevel

from sandboxd import event_loop
from sandboxd.concurrency.write_lock import WriteLock
from sandboxd.posix.hang_up import is_hung_up
from sandboxd.rpc.transport.interface import Sink
from sandboxd_proto.framing import Framing, frame

CHUNK = 256 * 1024
FIRST_CHUNK = 16 * 1024  # a request; malloc would go to the kernel for every large buffer
# Elsewhere the descriptors are inheritable until `_descriptors` has seen them: nothing is started
# in between, since both happen on the event loop's own thread.
_CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_ANCILLARY = socket.CMSG_SPACE(16 * 4)


class Channel:
    """Reading is done by the event loop's callback, which hands on what it got at once: a request
    is on its way before any task would have been woken up."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._sink: Sink | None = None
        self._chunk = FIRST_CHUNK
        self._write_lock = WriteLock()
        self._closed = False
        self.on_close: Callable[[], None] | None = None
        self.framing = Framing.LINES

    def listen(self, sink: Sink) -> None:
        """`sink` gets what arrives, with its descriptors, and empty bytes at the end."""
        if not self._closed and self._sink is None:
            self._sink = sink
            event_loop.add_reader(self._sock, self._read)

    def pause(self) -> None:
        """Until `listen`: nothing more is read."""
        if self._sink is not None:
            self._sink = None
            event_loop.remove_reader(self._sock)

    def _read(self) -> None:
        sink = self._sink
        if sink is None:
            return
        try:
            data, ancillary, _, _ = self._sock.recvmsg(self._chunk, _ANCILLARY, _CLOSE_ON_EXEC)
        except BlockingIOError:
            return
        except (OSError, MemoryError):  # the loop would call again at once, and without end
            data, ancillary = b"", []
        if not data:
            self.pause()
        self._chunk = CHUNK if len(data) == self._chunk else FIRST_CHUNK
        sink(data, _descriptors(ancillary) if ancillary else [])

    async def send(self, body: bytes) -> None:
        """Silently dropped once the connection is closed."""
        await self._write_lock.acquire()
        await self._send_rest(memoryview(frame(body, self.framing)))

    def send_at_once(self, body: bytes) -> Callable[[], Awaitable[None]] | None:
        """`send` for a caller that must not wait: if it answers something, a task awaits that."""
        if not self._write_lock.acquire_nowait():
            return partial(self.send, body)
        data = memoryview(frame(body, self.framing))
        try:
            data = data[self._sock.send(data) :]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            data = data[:0]
        if data:
            return partial(self._send_rest, data)
        self._write_lock.release()
        return None

    async def _send_rest(self, view: memoryview) -> None:
        try:
            await self._send_all(view)
        finally:
            self._write_lock.release()

    async def _send_all(self, view: memoryview) -> None:
        while view and not self._closed:
            try:
                view = view[self._sock.send(view) :]
                if view:  # a fast reader would starve other tasks
                    await anyio.lowlevel.checkpoint()
            except BlockingIOError:
                await self._writable()
            except OSError:
                self.close()

    async def _writable(self) -> None:
        try:
            await anyio.wait_writable(self._sock)
        except (anyio.ClosedResourceError, OSError, ValueError):
            self.close()

    def hung_up(self) -> bool:
        """Whether the peer closed both directions (and not only its writing side)."""
        if self._closed:
            return True
        return is_hung_up(self._sock)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.pause()
            anyio.notify_closing(self._sock)
            self._sock.close()
            if self.on_close is not None:
                self.on_close()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = len(data) - len(data) % 4
            fds += [int.from_bytes(data[i : i + 4], sys.byteorder) for i in range(0, whole, 4)]
    for fd in fds:
        os.set_inheritable(fd, False)
    return fds
