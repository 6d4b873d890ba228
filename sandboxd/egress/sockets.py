"""Nonblocking TCP sockets with anyio: connect, send, receive, reset."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

import anyio
import anyio.lowlevel

from sandboxd.policy.network.host_rules import Address

CHUNK = 64 * 1024
TURN_STEPS = 16  # messages or chunks of one connection before other tasks run
_RESET = struct.pack("ii", 1, 0)


async def connected(address: Address, port: int) -> socket.socket:
    """A connection to exactly this address. OSError when there is none."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(BlockingIOError):
            sock.connect((str(address), port))
        await anyio.wait_writable(sock)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
    except BaseException:
        sock.close()
        raise
    return sock


async def send_all(sock: socket.socket, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[sock.send(view) :]
        except BlockingIOError:
            await anyio.wait_writable(sock)


async def receive(sock: socket.socket, size: int = CHUNK) -> bytes:
    """Some bytes; none at the end of the stream. Yields to other tasks also while data is ready."""
    await anyio.lowlevel.checkpoint_if_cancelled()
    waited = False
    while True:
        try:
            data = sock.recv(size)
        except BlockingIOError:
            await anyio.wait_readable(sock)
            waited = True
            continue
        if not waited:
            # Shielded: bytes that were read are not lost to a time limit.
            await anyio.lowlevel.cancel_shielded_checkpoint()
        return data


class Turn:
    """Yields to other tasks after every `steps` pieces of work that do not wait."""

    __slots__ = ("_left", "_steps")

    def __init__(self, steps: int = TURN_STEPS) -> None:
        self._steps = self._left = steps

    async def step(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._left = self._steps
            await anyio.lowlevel.checkpoint()


async def receive_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await receive(sock, size - len(data))
        if not more:
            raise ConnectionResetError("the stream ended early")
        data += more
    return data


def reset(sock: socket.socket) -> None:
    """Make the next close a reset: the peer sees an error, not an end of stream."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


class Inbound:
    """A client's connection, with the bytes that were read but not consumed."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = bytearray()

    async def more(self) -> bool:
        """Read more; False at the end of the stream."""
        data = await receive(self.sock)
        self.buffer += data
        return bool(data)

    def taken(self, size: int) -> bytes:
        """The first `size` bytes of the buffer, removed from it."""
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data
