"""Connect to the daemon's socket, and check that this user owns the other end.

Before a byte is sent the client checks that no other user can have replaced the socket's folder,
and that the listening process has our uid: no other user may read a manifest or a command's input.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

    if sys.platform == "win32":
        from sandboxd_client.pipe import PipeSocket

CONNECT_TIMEOUT_S = 10.0


def connect(path: str) -> socket:
    """A blocking socket, or DaemonNotRunning / ServerNotTrusted."""
    if sys.platform == "win32":
        return _connect_pipe(path)
    import _socket

    check_folder(path)
    try:
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    except OSError as error:  # a sandbox without sockets
        raise not_running(path, error) from None
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


def is_readable(sock: socket, timeout_s: float | None) -> bool:
    """Whether something has come, or the end, within `timeout_s` (None: wait for it)."""
    if sys.platform == "win32":
        from typing import cast

        from sandboxd_client.pipe import PipeSocket

        return cast(PipeSocket, sock).poll(timeout_s)
    import select

    return bool(select.select([sock], [], [], timeout_s)[0])


def check_folder(path: str) -> None:
    """The folder belongs to this user or root, and no other user can replace files in it."""
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


def check_peer(sock: socket, path: str) -> None:
    """The listener has our uid."""
    if sys.platform == "win32":
        return
    uid = peer_uid(sock)
    if uid != os.getuid():
        from sandboxd_client.errors import ServerNotTrusted

        raise ServerNotTrusted(
            f"the daemon on {path} belongs to another user",
            remedy="start your own: unset SANDBOXD_SOCKET, or give --socket",
            cause=f"its uid is {uid}, yours is {os.getuid()}",
        )


def check_place(path: str) -> None:
    """DaemonNotRunning, which no start mends, for a path that is something else than a socket."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if sys.platform != "win32" and not stat.S_ISSOCK(mode):
        from sandboxd_client.errors import DaemonNotRunning

        raise DaemonNotRunning(
            f"{path} is no socket, but a {'folder' if stat.S_ISDIR(mode) else 'file'}",
            remedy="give --socket (or SANDBOXD_SOCKET) a path that is free, or leave it out: "
            "`sandboxctl socket` prints the usual one",
        )


def not_running(path: str, error: OSError) -> Exception:
    from sandboxd_client.errors import DaemonNotRunning
    from sandboxd_client.in_sandbox import is_inside

    if is_inside():
        return inside_error()
    check_place(path)
    if isinstance(error, PermissionError):
        return DaemonNotRunning(
            f"{path} belongs to another user",
            remedy="leave --socket (or SANDBOXD_SOCKET) out: each user has a daemon",
            cause=error.strerror or str(error),
            errno=error.errno,
        )
    return DaemonNotRunning(
        f"no sandboxd listens on {path}",
        remedy="start it with `sandboxd`, or let `sandboxctl` start it",
        cause=error.strerror or str(error),
        errno=error.errno,
    )


def inside_error() -> Exception:
    """Not one that a start mends: it has no errno."""
    from sandboxd_client.errors import DaemonNotRunning

    return DaemonNotRunning(
        "this is inside a sandbox, and no daemon can be reached from there",
        remedy="use sandboxd outside of the sandbox",
    )


if sys.platform == "win32":

    def _connect_pipe(path: str) -> socket:
        """A named pipe whose owner is our user."""
        from typing import cast

        from sandboxd_client.errors import ServerNotTrusted
        from sandboxd_client.pipe import open_pipe

        try:
            made = open_pipe(path)
        except OSError as error:
            raise not_running(path, error) from None
        problem = _pipe_problem(made)
        if problem is not None:
            made.close()
            raise ServerNotTrusted(
                f"the pipe {path} was not made by a daemon of yours",
                remedy="start your own: unset SANDBOXD_SOCKET, or give --socket",
                cause=problem,
            )
        return cast("socket", made)

    def _pipe_problem(made: PipeSocket) -> str | None:
        from sandboxd_client.pipe import MEDIUM, label_of, own_sid, owner_of

        try:
            owner, mine, label = owner_of(made), own_sid(), label_of(made)
        except OSError as error:
            return f"its owner is not known: {error.strerror}"
        if owner != mine:
            return f"its owner is {owner}"
        return f"its integrity level is {label:#x}, below Medium" if label < MEDIUM else None
