"""UDP datagrams with the address that they were sent to (IP_PKTINFO).

A socket that is bound to every address answers from the address that was asked: clients drop
answers from another one.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, NamedTuple

_IP_PKTINFO = 8
_PKTINFO = struct.Struct("=i4s4s")


class Datagram(NamedTuple):
    """`asked`: the address that it was sent to, if the kernel says so."""

    data: bytes
    asked: bytes | None
    sender: Any


def receive(sock: socket.socket, most: int) -> Datagram:
    data, control, _, sender = sock.recvmsg(most, 64)
    asked = None
    for level, kind, info in control:
        if level == socket.IPPROTO_IP and kind == _IP_PKTINFO and len(info) >= _PKTINFO.size:
            asked = _PKTINFO.unpack_from(info)[2]
    return Datagram(data, asked, sender)


def answer(sock: socket.socket, to: Datagram, data: bytes) -> None:
    source = []
    if to.asked is not None:
        info = _PKTINFO.pack(0, to.asked, bytes(4))
        source = [(socket.IPPROTO_IP, _IP_PKTINFO, info)]
    sock.sendmsg([data], source, 0, to.sender)
