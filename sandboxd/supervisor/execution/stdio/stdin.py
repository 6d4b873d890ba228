"""A command's stdin: what the request brought, then what `execution/write` adds, in order."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from sandboxd.concurrency.write_lock import WriteLock
from sandboxd.supervisor.execution.stdio.ends.current_platform import ends
from sandboxd_proto.errors import InvalidParams


class StdinFeed:
    """Owns the daemon's end of the pipe (or a copy of the terminal's master)."""

    def __init__(self, fd: int, *, is_pty: bool = False) -> None:
        self._end = ends.WriteEnd(fd) if fd >= 0 else None
        self._is_pty = is_pty
        self._write_lock = WriteLock()

    async def write(self, data: bytes) -> None:
        """Returns when the command's pipe has taken everything, at once if it has room. A closed
        reader is not an error."""
        await self._write_lock.acquire()
        try:
            if self._end is None:
                raise InvalidParams(
                    "the stdin of this execution is closed",
                    field="execution_id",
                    remedy='start it with "stdin_open": true, and write before close_stdin',
                )
            await self._write_all(data)
        finally:
            self._write_lock.release()

    async def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._end is not None:
            try:
                view = view[self._end.write_now(view[:65536]) :]
                if view:  # a fast reader would starve other tasks
                    await anyio.lowlevel.checkpoint()
                continue
            except BlockingIOError:
                pass
            except OSError:  # the reader has closed it
                return
            try:
                await self._end.writable()
            except anyio.ClosedResourceError:  # the command has ended meanwhile
                return

    async def end(self) -> None:
        """After what was written before. A terminal gets the end-of-file character."""
        await self._write_lock.acquire()
        try:
            if self._is_pty:
                await self._write_all(b"\x04")
            else:
                self.close()
        finally:
            self._write_lock.release()

    def close(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end.close()
