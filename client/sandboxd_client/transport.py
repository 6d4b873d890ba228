"""A connected socket whose other end is known to be ours.

Before a byte is sent the client checks that the socket's folder cannot have been swapped by
another user, and that the process which listens has our uid: a manifest and a command's input
are not for anybody else's eyes.
"""

from __future__ import annotations

import os
import stat
import sys

from sandboxd_client import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

CONNECT_TIMEOUT_S = 10.0


def connect(path: str) -> socket:
    """A blocking socket, or DaemonNotRunning / ServerNotTrusted."""
    if sys.platform == "win32":
        raise _unsupported()
    import _socket

    check_folder(path)
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        # connect() to a Unix socket blocks while the listener's backlog is full.
        sock.settimeout(CONNECT_TIMEOUT_S)
        sock.connect(path)
        sock.settimeout(None)
        check_peer(sock, path)
    except OSError as error:
        sock.close()
        raise not_running(path, error) from None
    except BaseException:
        sock.close()
        raise
    return sock


def check_folder(path: str) -> None:
    """The folder is ours or root's, and nobody else can replace what lies in it."""
    if sys.platform == "win32":
        return
    folder = os.path.dirname(os.path.abspath(path))
    try:
        status = os.stat(folder)
    except OSError as error:
        raise not_running(path, error) from None
    shared = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
    if status.st_uid not in (os.getuid(), 0) or shared:
        from sandboxd_client.errors import ServerNotTrusted

        raise ServerNotTrusted(
            f"the folder {folder} of the daemon's socket can be changed by other users",
            remedy=f"make it yours alone (chmod 700 {folder}), or set SANDBOXD_SOCKET to a path "
            "in a folder of your own",
            cause=f"its owner is uid {status.st_uid}, its mode {stat.S_IMODE(status.st_mode):04o}",
        )


def check_peer(sock: socket, path: str) -> None:
    """The listener has our uid."""
    if sys.platform == "win32":
        return
    uid = system.peer_uid(sock)
    if uid != os.getuid():
        from sandboxd_client.errors import ServerNotTrusted

        raise ServerNotTrusted(
            f"the daemon on {path} belongs to another user",
            remedy="start your own: unset SANDBOXD_SOCKET, or give --socket",
            cause=f"its uid is {uid}, yours is {os.getuid()}",
        )


def not_running(path: str, error: OSError) -> Exception:
    from sandboxd_client.errors import DaemonNotRunning

    return DaemonNotRunning(
        f"no sandboxd listens on {path}",
        remedy="start it with `sandboxd`, or let `sandboxctl` start it",
        cause=error.strerror or str(error),
        errno=error.errno,
    )


def _unsupported() -> Exception:
    from sandboxd_client.errors import DaemonNotRunning

    return DaemonNotRunning("this client speaks over Unix sockets only")
