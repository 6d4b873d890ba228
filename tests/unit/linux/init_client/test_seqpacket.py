"""What the other side said before it closed is heard, also when it left something unread."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable

import anyio

from sandboxd.linux.init_client import seqpacket


def after_a_close_with_something_unread(fd: int | None = None) -> socket.socket:
    ours, theirs = seqpacket.pair()
    with theirs:
        ours.send(b"never read")
        if fd is None:
            theirs.send(b"last words")
        else:
            socket.send_fds(theirs, [b"last words"], [fd])
    return ours


Receive = Callable[[socket.socket], Awaitable[object]]


async def _twice(receive: Receive, sock: socket.socket) -> list[object]:
    with anyio.fail_after(10):
        return [await receive(sock), await receive(sock)]


def test_control_the_kernel_reports_the_reset_first() -> None:
    with after_a_close_with_something_unread() as sock:
        try:
            sock.recv(64)
            raise AssertionError("the last words came first")
        except ConnectionResetError:
            assert sock.recv(64) == b"last words"


def test_last_words_are_received() -> None:
    with after_a_close_with_something_unread() as sock:
        assert anyio.run(_twice, seqpacket.receive, sock) == [b"last words", b""]


def test_last_words_with_a_descriptor_are_received() -> None:
    with after_a_close_with_something_unread(fd=0) as sock:
        with contextlib.suppress(ConnectionResetError):
            seqpacket.take_with_descriptor(sock)
        words, descriptor = seqpacket.take_with_descriptor(sock)
        assert words == b"last words"
        assert descriptor is not None
        os.close(descriptor)
        assert seqpacket.take_with_descriptor(sock) == (b"", None)
