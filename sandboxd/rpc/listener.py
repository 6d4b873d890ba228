"""The daemon's socket: one daemon for each path, a folder of ours, no stale file in the way."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from contextlib import suppress

BACKLOG = 4096


class ListenError(Exception):
    """The daemon cannot listen there; the message says why and what to do."""


class Listener:
    """Holds the lock for as long as it lives; `close` removes the socket that it made.

    Without a lock the socket is systemd's: it stays when we end.
    """

    def __init__(self, sock: socket.socket, lock: int | None) -> None:
        self.sock = sock
        self.path = str(sock.getsockname())
        self._lock = lock
        sock.setblocking(False)

    @property
    def made_here(self) -> bool:
        return self._lock is not None

    def close(self) -> None:
        self.sock.close()
        if self._lock is not None:
            with suppress(OSError):
                os.unlink(self.path)
            os.close(self._lock)


def listen(path: str) -> Listener:
    path = os.path.abspath(path)
    _check_folder(os.path.dirname(path))
    if len(os.fsencode(path)) > 107:
        raise ListenError(f"the socket path {path} is longer than 107 bytes: choose a shorter one")
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
    return Listener(sock, lock)


def adopt(sock: socket.socket) -> Listener:
    """A socket that systemd listens on; it stays systemd's."""
    listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM or not listening:
        raise ListenError("the socket that was passed is no listening Unix stream: use Accept=no")
    return Listener(sock, None)


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
    """We hold the lock, so a socket file that is there belongs to a daemon that is gone."""
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
