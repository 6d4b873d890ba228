"""A named pipe of Windows for the asynchronous client: threads wait, on any event loop."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import cast

import anyio
import anyio.to_thread

from sandboxd_client import transport
from sandboxd_client.pipe import PipeSocket

assert sys.platform == "win32"


class PipeStream:
    """The methods of anyio's stream of a Unix socket that the client uses."""

    def __init__(self, pipe: PipeSocket) -> None:
        self._pipe = pipe

    async def send(self, data: bytes) -> None:
        try:
            await anyio.to_thread.run_sync(self._pipe.sendall, data)
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def send_fds(self, data: bytes, fds: Sequence[int]) -> None:
        raise OSError("descriptors can be passed over Unix sockets only")

    async def receive(self, size: int) -> bytes:
        try:
            data = await anyio.to_thread.run_sync(self._pipe.recv, size, abandon_on_cancel=True)
        except OSError as error:
            raise anyio.BrokenResourceError from error
        if not data:
            raise anyio.EndOfStream
        return data

    async def aclose(self) -> None:
        """A thread that reads or writes goes on, with the end of the stream."""
        self._pipe.close()


async def connect(path: str) -> PipeStream:
    """DaemonNotRunning or ServerNotTrusted, as over a Unix socket."""
    made = await anyio.to_thread.run_sync(transport.connect, path)
    return PipeStream(cast(PipeSocket, made))
