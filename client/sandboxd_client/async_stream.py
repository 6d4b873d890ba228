"""The asynchronous client's connection: a Unix socket, or a named pipe on Windows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol

import anyio

from sandboxd_client import transport


class ByteStream(Protocol):
    async def send(self, data: bytes, /) -> None: ...
    async def send_fds(self, data: bytes, fds: Sequence[int], /) -> None: ...
    async def receive(self, size: int, /) -> bytes: ...
    async def aclose(self) -> None: ...


if sys.platform == "win32":

    async def connect(path: str) -> ByteStream:
        from sandboxd_client import async_pipe

        return await async_pipe.connect(path)

else:
    from anyio.abc import SocketAttribute

    async def connect(path: str) -> ByteStream:
        """DaemonNotRunning or ServerNotTrusted where no daemon of ours listens."""
        transport.check_folder(path)
        try:
            stream = await anyio.connect_unix(path)
        except OSError as error:
            raise transport.not_running(path, error) from None
        try:
            transport.check_peer(stream.extra(SocketAttribute.raw_socket), path)
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
        return stream


async def close_forcefully(stream: ByteStream) -> None:
    """Without waiting for what is still to be sent."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await stream.aclose()
