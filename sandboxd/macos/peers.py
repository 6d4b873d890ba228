"""Who is on the other end of a Unix socket on macOS, and whether it is in a sandbox of ours.

`getsockopt` is asked for raw bytes, which are decoded here: the layouts are fixed by the kernel's
interface (sys/un.h, sys/ucred.h, bsm/audit.h).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol

import msgspec

SOL_LOCAL = 0
LOCAL_PEERCRED = 1
LOCAL_PEERPID = 2
LOCAL_PEERTOKEN = 6
_XUCRED_BYTES = 76  # version, uid, number of groups (16 bits), 16 groups
_TOKEN_BYTES = 32  # eight 32-bit words; word 5 is the pid, word 7 its version
_XUCRED_VERSION = 0


class HasOptions(Protocol):
    def getsockopt(self, level: int, name: int, size: int, /) -> bytes: ...


class MacPeer(msgspec.Struct, frozen=True):
    """`generation` changes when the pid is used again; 0 where the kernel does not say it."""

    uid: int
    pid: int
    generation: int = 0


def peer_of(sock: HasOptions) -> MacPeer:
    """OSError if the kernel does not say who it is: such a peer is refused."""
    uid = decode_xucred(sock.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, _XUCRED_BYTES))
    try:
        pid, generation = decode_token(sock.getsockopt(SOL_LOCAL, LOCAL_PEERTOKEN, _TOKEN_BYTES))
    except OSError:
        (pid,) = struct.unpack("=i", sock.getsockopt(SOL_LOCAL, LOCAL_PEERPID, 4))
        generation = 0
    return MacPeer(uid, pid, generation)


def decode_xucred(raw: bytes) -> int:
    if len(raw) < 8:
        raise OSError("the kernel gave no credentials of the peer")
    version, uid = struct.unpack_from("=II", raw)
    if version != _XUCRED_VERSION:
        raise OSError(f"credentials of an unknown version {version}")
    return int(uid)


def decode_token(raw: bytes) -> tuple[int, int]:
    if len(raw) != _TOKEN_BYTES:
        raise OSError("the kernel gave no audit token of the peer")
    words = struct.unpack("=8I", raw)
    return int(words[5]), int(words[7])


def refusal(
    peer: MacPeer, own_uid: int, sandboxed: Callable[[int], bool]
) -> tuple[str, str] | None:
    """(why this peer is refused, what to do); None when it is accepted.

    Every sandboxed process is refused, not only ours: a sandbox of the App Store's that reached
    the socket could ask for a wider one just the same.
    """
    if peer.uid != own_uid:
        return (
            f"this daemon serves uid {own_uid}, and not uid {peer.uid}",
            "start a sandboxd of your own",
        )
    if peer.pid <= 0:
        return "the peer ended before it could be checked", "connect again"
    if sandboxed(peer.pid):
        return (
            "a sandboxed process may not use the daemon",
            "connect from outside the sandbox",
        )
    return None
