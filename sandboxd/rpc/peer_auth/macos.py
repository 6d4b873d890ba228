"""Peers on macOS: the same user, and in no sandbox."""

from __future__ import annotations

import os
import socket
import sys

from sandboxd.macos import peers
from sandboxd.macos.census import SandboxCensus
from sandboxd.macos.peers import MacPeer
from sandboxd_proto.errors import Unauthorized

assert sys.platform != "win32"
_census = SandboxCensus()


def peer_of(sock: socket.socket) -> MacPeer:
    return peers.peer_of(sock)


def refusal(sock: socket.socket, *, allow_other_namespaces: bool) -> Unauthorized | None:
    """Why this peer is refused; None if it is accepted. There are no namespaces to look at.

    Its identity is read again after the look: another process may have got its pid meanwhile.
    """
    try:
        peer = peers.peer_of(sock)
        why = peers.refusal(peer, os.getuid(), _census.sandboxed)
        if why is None and peers.peer_of(sock) != peer:
            why = ("the peer ended before it could be checked", "connect again")
    except OSError as error:
        why = (f"the kernel does not say who the peer is: {error}", "connect again")
    return None if why is None else Unauthorized(why[0], remedy=why[1])


def pid_of(sock: socket.socket) -> int | None:
    return peer_of(sock).pid
