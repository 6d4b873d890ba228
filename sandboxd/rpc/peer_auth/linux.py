"""Identify the peer of a connection, and refuse those that may not use the daemon.

A sandboxed command that reached the socket could ask for a wider sandbox. So a peer must be the
daemon's own user, not one of the daemon's descendants (never), and not in another pid or user
namespace (unless the config says otherwise).
"""

from __future__ import annotations

import os
import select
import socket
import struct

from sandboxd.linux.peercred import PeerCredentials, peer_credentials
from sandboxd_proto.errors import Unauthorized

_SO_PEERPIDFD = 77  # Linux 6.5
_NAMESPACES = ("pid", "user")
_STAT_BYTES = 4096  # 52 numbers and a name of 64 bytes are less


def pid_of(sock: socket.socket) -> int | None:
    return peer_credentials(sock).pid


def refusal(sock: socket.socket, *, allow_other_namespaces: bool) -> Unauthorized | None:
    """Why this peer is refused; None if it is accepted."""
    peer = peer_credentials(sock)
    if peer.uid != os.getuid():
        return Unauthorized(
            f"this daemon serves uid {os.getuid()}, and not uid {peer.uid}",
            remedy="start a sandboxd of your own",
        )
    pinned = _pin(sock)
    try:
        found = _check_process(peer, allow_other_namespaces=allow_other_namespaces)
        if found is None and pinned is not None and _has_ended(pinned):
            # Its pid may be another process by now: what was read cannot be trusted.
            return _gone_error()
        return found
    finally:
        if pinned is not None:
            os.close(pinned)


def _check_process(peer: PeerCredentials, *, allow_other_namespaces: bool) -> Unauthorized | None:
    if peer.pid > 0 and not os.path.exists(f"/proc/{peer.pid}/stat"):
        return _gone_error()
    if _descends_from_us(peer.pid):
        return Unauthorized(
            "a command of this daemon may not use the daemon",
            remedy="connect from outside the sandbox",
        )
    if allow_other_namespaces:
        return None
    for name in _NAMESPACES:
        problem = _other_namespace(peer.pid, name)
        if problem is not None:
            return Unauthorized(
                f"the peer (pid {peer.pid}) {problem}",
                remedy="for editors in Flatpaks and containers set "
                "[peers] allow_other_namespaces = true in the config",
            )
    return None


def _gone_error() -> Unauthorized:
    return Unauthorized("the peer ended before it could be checked", remedy="connect again")


def _other_namespace(pid: int, name: str) -> str | None:
    """pid 0: the kernel has no number for the peer in our pid namespace."""
    if pid == 0:
        return "is in another pid namespace"
    try:
        theirs = os.stat(f"/proc/{pid}/ns/{name}")
        ours = os.stat(f"/proc/self/ns/{name}")
    except OSError:
        return f"does not let its {name} namespace be read"
    if (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino):
        return f"is in another {name} namespace"
    return None


def _descends_from_us(pid: int) -> bool:
    me = os.getpid()
    for _ in range(10_000):
        if pid == me:
            return True
        if pid <= 1:
            return False
        pid = _parent(pid)
    return True


def _parent(pid: int) -> int:
    """Three system calls: a file object would take ten, for each process above the peer."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            line = os.read(fd, _STAT_BYTES)
        finally:
            os.close(fd)
        # The name in parentheses may contain anything, also ")".
        return int(line.rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _pin(sock: socket.socket) -> int | None:
    """A pidfd of the peer, where the kernel gives one: it tells whether the pid is still it."""
    try:
        return struct.unpack("i", sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4))[0]  # type: ignore[no-any-return]
    except OSError:
        return None


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
