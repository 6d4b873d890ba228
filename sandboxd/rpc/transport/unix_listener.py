"""The daemon's socket: one daemon for each path, in its own folder; removes stale socket files."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import stat
import sys
from contextlib import suppress
from typing import Protocol

import anyio

from sandboxd.rpc.transport.interface import ListenError
from sandboxd.rpc.transport.unix import Channel
from sandboxd_proto.errors import Unauthorized

log = logging.getLogger(__name__)
BACKLOG = 4096
_RETRY = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
MOST_BYTES = 103 if sys.platform == "darwin" else 107  # of sun_path, without its NUL


class PeerAuth(Protocol):
    """Identifies the peer of a socket: rpc/peer_auth has one for each system."""

    def pid_of(self, sock: socket.socket) -> int | None: ...
    def refusal(
        self, sock: socket.socket, *, allow_other_namespaces: bool
    ) -> Unauthorized | None: ...


class AcceptedSocket:
    """Checked as soon as it is accepted: the peer's pid is most likely still the peer's then."""

    def __init__(self, sock: socket.socket, peers: PeerAuth, allow_other_namespaces: bool) -> None:
        self._sock = sock
        self._peers = peers
        self._allow_other_namespaces = allow_other_namespaces
        self._refused: Unauthorized | None = None
        self.pid: int | None = None

    def identify(self) -> None:
        self._refused = self._peers.refusal(
            self._sock, allow_other_namespaces=self._allow_other_namespaces
        )
        self.pid = self._peers.pid_of(self._sock)

    def transport(self) -> Channel:
        return Channel(self._sock)

    def refusal(self) -> Unauthorized | None:
        return self._refused

    def close(self) -> None:
        self._sock.close()


class ListeningSocket:
    """Holds the lock for as long as it lives; `close` removes the socket that it made.

    Without a lock the socket is systemd's: it stays when we end.
    """

    def __init__(self, sock: socket.socket, lock: int | None, peers: PeerAuth) -> None:
        self.sock = sock
        self._peers = peers
        self.path = str(sock.getsockname())
        self._lock = lock
        sock.setblocking(False)

    @property
    def made_here(self) -> bool:
        return self._lock is not None

    async def accept(self, *, allow_other_namespaces: bool) -> AcceptedSocket:
        while True:
            try:
                client, _ = self.sock.accept()
                return AcceptedSocket(client, self._peers, allow_other_namespaces)
            except BlockingIOError:
                await anyio.wait_readable(self.sock)
            except OSError as error:
                log.warning("cannot accept a connection: %s", error.strerror)
                await anyio.sleep(0.1 if error.errno in _RETRY else 1.0)

    def close(self) -> None:
        self.sock.close()
        if self._lock is not None:
            with suppress(OSError):
                os.unlink(self.path)
            os.close(self._lock)


def listen(path: str, peers: PeerAuth) -> ListeningSocket:
    path = os.path.abspath(path)
    _check_folder(os.path.dirname(path))
    if len(os.fsencode(path)) > MOST_BYTES:
        raise ListenError(
            f"the socket path {path} is longer than {MOST_BYTES} bytes: choose a shorter one"
        )
    try:
        lock = _lock(path)
    except OSError as error:
        raise ListenError(f"cannot lock {path}: {os.strerror(error.errno or 0)}") from None
    try:
        _remove_stale(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        sock.listen(BACKLOG)
    except OSError as error:
        os.close(lock)
        raise ListenError(f"cannot listen on {path}: {os.strerror(error.errno or 0)}") from None
    return ListeningSocket(sock, lock, peers)


def adopt(sock: socket.socket, peers: PeerAuth) -> ListeningSocket:
    """Use a socket that systemd listens on. It is not removed at the end."""
    listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM or not listening:
        raise ListenError("the socket that was passed is no listening Unix stream: use Accept=no")
    return ListeningSocket(sock, None, peers)


def _check_folder(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.lstat(folder)
    except OSError as error:
        raise ListenError(f"cannot make {folder}: {os.strerror(error.errno or 0)}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise ListenError(f"{folder} is not a folder (a symlink is not accepted)")
    ours = status.st_uid in (os.getuid(), 0)
    shared = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
    if not ours or shared:
        raise ListenError(
            f"{folder} can be changed by others: use a folder of your own with mode 0700"
        )


def _lock(path: str) -> int:
    lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ListenError(f"another sandboxd listens on {path} already") from None
    return lock


def _remove_stale(path: str) -> None:
    """We hold the lock, so an existing socket file belongs to a daemon that has ended."""
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            if _answers(path):
                raise ListenError(f"something else listens on {path} already")
            os.unlink(path)
    except FileNotFoundError:
        pass


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True
