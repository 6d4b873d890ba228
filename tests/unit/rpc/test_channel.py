"""A connection that cannot be read any more is ended: its callback is not called without end."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from sandboxd.rpc.transport.unix import Channel


class Failing(socket.socket):
    """As the kernel and the allocator answer; that memory is short cannot be had at will."""

    error: BaseException

    def recvmsg(self, *_: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [MemoryError(), ConnectionResetError()])
def test_a_connection_for_which_there_is_no_memory_ends(error: BaseException) -> None:
    got: list[tuple[bytes, list[int]]] = []

    async def work() -> None:
        ours, theirs = socket.socketpair()
        failing = Failing(fileno=ours.detach())
        failing.error = error
        channel = Channel(failing)
        channel.listen(lambda data, fds: got.append((data, fds)))
        theirs.sendall(b"a request\n")
        while not got:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        for _ in range(10):  # turns of the loop: it is readable still
            await asyncio.sleep(0)
        channel.close()
        theirs.close()

    asyncio.run(asyncio.wait_for(work(), 10))
    assert got == [(b"", [])]
