"""Who is at the other end of a Unix socket, as the kernel noted it when the peer connected."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

_UCRED = struct.Struct("iII")


class PeerCredentials(NamedTuple):
    """`pid` may have ended, and another process may have it by now."""

    pid: int
    uid: int
    gid: int


def peer_credentials(sock: socket.socket) -> PeerCredentials:
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return PeerCredentials(*_UCRED.unpack(packed))
