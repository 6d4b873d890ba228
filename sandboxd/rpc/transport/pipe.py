"""A connection over a named pipe: chunks in, whole frames out, in order. Overlapped I/O only.

The sibling of the Unix socket's channel. A pipe carries no descriptors and knows no half-close.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial

from sandboxd import event_loop
from sandboxd.concurrency.write_lock import WriteLock
from sandboxd.platform.windows.loop import current_proactor
from sandboxd.rpc.transport.interface import Sink
from sandboxd.windows.handles import Handle
from sandboxd_proto.framing import Framing, frame

assert sys.platform == "win32"

CHUNK = 64 * 1024


class PipeChannel:
    """One read and one write are outstanding at a time; writers wait for their turn in order."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._loop = event_loop.running_loop()
        self._proactor = current_proactor()
        self._sink: Sink | None = None
        self._reading: event_loop.Future[bytes] | None = None
        self._held: bytes | None = None  # read while paused
        self._write_lock = WriteLock()
        self._closed = False
        self.on_close: Callable[[], None] | None = None
        self.framing = Framing.LINES

    def listen(self, sink: Sink) -> None:
        """`sink` gets what arrives, and empty bytes at the end."""
        if self._closed or self._sink is not None:
            return
        self._sink = sink
        if self._held is not None:
            self._loop.call_soon(self._deliver_held)
        else:
            self._read()

    def pause(self) -> None:
        """Until `listen`: nothing more is handed on."""
        self._sink = None

    def _read(self) -> None:
        if self._reading is not None or self._closed:
            return
        try:
            self._reading = self._proactor.recv(self._handle, CHUNK)
        except OSError:
            self._held = b""
            self._loop.call_soon(self._deliver_held)
            return
        self._reading.add_done_callback(self._arrived)

    def _arrived(self, reading: event_loop.Future[bytes]) -> None:
        self._reading = None
        if reading.cancelled():
            return
        try:
            self._held = bytes(reading.result())
        except OSError:
            self._held = b""
        self._deliver_held()

    def _deliver_held(self) -> None:
        sink, data = self._sink, self._held
        if sink is None or data is None:
            return
        self._held = None
        if not data:
            self._sink = None
        sink(data, [])
        if self._sink is not None:
            self._read()

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
            sending = self._proactor.send(self._handle, data)
        except OSError:
            self.close()
            self._write_lock.release()
            return None
        if not sending.done():
            return partial(self._finish, sending, data)
        if sending.exception() is None and sending.result() < len(data):
            return partial(self._send_rest, data[sending.result() :])
        self._write_lock.release()
        return None

    async def _finish(self, sending: event_loop.Future[int], data: memoryview) -> None:
        try:
            done = await sending
        except OSError:
            self.close()
            self._write_lock.release()
            return
        except BaseException:
            self._write_lock.release()
            raise
        await self._send_rest(data[done:])

    async def _send_rest(self, view: memoryview) -> None:
        try:
            while view and not self._closed:
                try:
                    view = view[await self._proactor.send(self._handle, view) :]
                except OSError:
                    self.close()
        finally:
            self._write_lock.release()

    def hung_up(self) -> bool:
        """A pipe has no half-close: the end of reading is the end."""
        return True

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.pause()
        if self._reading is not None:
            self._reading.cancel()
        self._handle.close()
        if self.on_close is not None:
            self.on_close()
