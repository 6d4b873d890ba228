"""A command's stdin: what the request brought, then what `execution/write` adds, in order."""

from __future__ import annotations

import os

import anyio

from sandboxd_proto.errors import InvalidParams


class StdinFeed:
    """Owns the daemon's end of the pipe (or a copy of the terminal's master)."""

    def __init__(self, fd: int, *, is_pty: bool = False) -> None:
        self._fd = fd
        self._is_pty = is_pty
        self._lock: anyio.Lock | None = None
        self._waiting = False

    async def write(self, data: bytes) -> None:
        """Returns when the command's pipe has taken everything; a closed reader is not an error."""
        async with self._in_order():
            if self._fd < 0:
                raise InvalidParams(
                    "the stdin of this execution is closed",
                    field="execution_id",
                    remedy='start it with "stdin_open": true, and write before close_stdin',
                )
            await self._write_all(data)

    def _in_order(self) -> anyio.Lock:
        """Waiters are served in order of arrival. Most commands never get one."""
        if self._lock is None:
            self._lock = anyio.Lock()
        return self._lock

    async def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._fd >= 0:
            try:
                view = view[os.write(self._fd, view[:65536]) :]
                continue
            except BlockingIOError:
                pass
            except OSError:  # nobody reads any more
                return
            self._waiting = True
            try:
                await anyio.wait_writable(self._fd)
            except anyio.ClosedResourceError:  # the command has ended meanwhile
                return
            finally:
                self._waiting = False

    def write_now(self, data: bytes) -> bytes:
        """What did not fit into the pipe: most input does, and then nobody has to wait."""
        try:
            return data[os.write(self._fd, data) :] if data else b""
        except BlockingIOError:
            return data
        except OSError:
            return b""

    async def end(self) -> None:
        """After what was written before. A terminal gets the end-of-file character."""
        async with self._in_order():
            if self._is_pty:
                await self._write_all(b"\x04")
            else:
                self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if self._waiting:
                anyio.notify_closing(fd)
            os.close(fd)
