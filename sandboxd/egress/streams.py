"""Nonblocking TCP sockets with anyio: connect, send, receive, and how a connection is cut off."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

import anyio

from sandboxd.policy.hosts import Address

CHUNK = 64 * 1024
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
    """Some bytes; none at the end of the stream."""
    while True:
        try:
            return sock.recv(size)
        except BlockingIOError:
            await anyio.wait_readable(sock)


async def receive_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await receive(sock, size - len(data))
        if not more:
            raise ConnectionResetError("the stream ended early")
        data += more
    return data


def reset(sock: socket.socket) -> None:
    """Make the coming close abrupt: the other side sees an error, not an end."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


class Inbound:
    """A client's connection with what was read of it but not used yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = bytearray()

    async def more(self) -> bool:
        """Read on; False at the end of the stream."""
        data = await receive(self.sock)
        self.buffer += data
        return bool(data)

    def taken(self, size: int) -> bytes:
        """The first `size` bytes of the buffer, removed from it."""
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data
