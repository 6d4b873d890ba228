"""What differs by operating system for a client: the uid of a socket's listener."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

if sys.platform == "linux":

    def peer_uid(sock: socket) -> int:
        """The uid of the process that called listen()."""
        import _socket

        credentials = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        return int.from_bytes(credentials[4:8], sys.byteorder)  # struct ucred {pid, uid, gid}

elif sys.platform == "darwin":
    _SOL_LOCAL, _LOCAL_PEERCRED = 0, 1

    def peer_uid(sock: socket) -> int:
        """The uid of the process that called listen()."""
        credentials = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)
        return int.from_bytes(credentials[4:8], sys.byteorder)  # struct xucred {version, uid, …}

else:

    def peer_uid(sock: socket) -> int:
        raise OSError("this system does not report who listens on a socket")
