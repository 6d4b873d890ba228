"""Send and receive whole messages of the init on nonblocking SEQPACKET sockets."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Sequence
from contextlib import suppress

import anyio

from sandboxd import event_loop
from sandboxd.linux.init_client import codec
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.binary import seal
from sandboxd.preallocated import Preallocated


def _make_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    return ours, theirs


_pairs = Preallocated(_make_pair)
_ROOM = socket.CMSG_LEN(codec.FDS_MAX * array.array("i").itemsize)
_TRUNCATED = int(socket.MSG_CTRUNC)  # a plain number: the arithmetic of enums is slow


def pair() -> tuple[socket.socket, socket.socket]:
    """(ours, which does not block, and the init's)."""
    return _pairs.take()


async def send(sock: socket.socket, request: wire.Request, descriptors: Sequence[int] = ()) -> None:
    """OSError when the other side is gone."""
    while True:
        try:
            send_at_once(sock, request, descriptors)
            return
        except BlockingIOError:
            await anyio.wait_writable(sock)


def send_at_once(
    sock: socket.socket, request: wire.Request, descriptors: Sequence[int] = ()
) -> None:
    """BlockingIOError when there is no room, another OSError when the other side is gone."""
    encoded = codec.encode(request)
    if encoded.payload is None:
        _send(sock, encoded.message, descriptors)
        return
    payload = seal(encoded.payload, "payload")
    try:
        _send(sock, encoded.message, (payload, *descriptors))
    finally:
        os.close(payload)


def _send(sock: socket.socket, message: bytes, descriptors: Sequence[int]) -> None:
    if descriptors:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        sock.sendmsg([message], [rights])
    else:
        sock.send(message)


def send_now(sock: socket.socket, request: wire.Request) -> None:
    """For signals: a few bytes, which fit unless the peer is stuck; then they are dropped."""
    with suppress(OSError):
        sock.send(codec.encode(request).message)


async def receive(sock: socket.socket) -> bytes:
    """One message; empty when the other side is gone.

    A peer that closes before it has read our last message leaves one ECONNRESET, ahead of its own
    queued messages: later calls return those, and then the end.
    """
    while True:
        try:
            return sock.recv(codec.MESSAGE_MAX)
        except BlockingIOError:
            await event_loop.wait_readable(sock)
        except ConnectionResetError:
            continue


def take_with_descriptor(sock: socket.socket) -> tuple[bytes, int | None]:
    """One message that is ready, and at most one descriptor received with it: None where there is
    none, or no room for it in this process."""
    data, control, flags, _ = sock.recvmsg(codec.MESSAGE_MAX, _ROOM)
    if not control:
        return data, None
    fds = array.array("i")
    for level, kind, packed in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(packed[: len(packed) - len(packed) % fds.itemsize])
    for fd in fds:
        os.set_inheritable(fd, False)
    whole = not flags & _TRUNCATED
    for surplus in fds[whole:]:
        os.close(surplus)
    return data, fds[0] if fds and whole else None
