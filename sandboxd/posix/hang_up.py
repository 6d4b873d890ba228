"""Whether the peer of a stream socket has left."""

from __future__ import annotations

import select
import socket
import sys


def has_stopped_sending(sock: socket.socket) -> bool:
    """Whether the peer has closed its writing side, or both. False where poll does not tell."""
    poll = select.poll()
    poll.register(sock, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


def is_hung_up(sock: socket.socket) -> bool:
    """Whether the peer has closed both directions, and not only its writing side."""
    if sys.platform == "darwin":
        return _by_kqueue(sock)
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))


if sys.platform == "darwin":

    def _by_kqueue(sock: socket.socket) -> bool:
        """poll's POLLHUP comes on a half-close there; the write side tells them apart."""
        queue = select.kqueue()
        try:
            change = select.kevent(sock, select.KQ_FILTER_WRITE, select.KQ_EV_ADD)
            return any(e.flags & select.KQ_EV_EOF for e in queue.control([change], 1, 0))
        finally:
            queue.close()
