"""Which user is at the other end of a TCP connection over 127.0.0.1, where Linux says so.

The address of the dashboard is on the browser's command line, which all users of a machine can
read: the first that connects must also be the same user.
"""

from __future__ import annotations

import os
import socket
import sys


def is_other_user(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """True if the kernel names another user as the owner of the client's socket, or none."""
    if sys.platform != "linux":
        return False  # the token alone decides
    try:
        with open("/proc/net/tcp", encoding="ascii") as table:
            rows = [line.split() for line in table]
    except OSError:
        return False
    ends = [_hexadecimal(client), _hexadecimal(server)]
    owners = [int(row[7]) for row in rows[1:] if row[1:3] == ends]
    return owners != [os.getuid()]


def _hexadecimal(address: tuple[str, int]) -> str:
    """As the kernel writes it: the address in the byte order of the machine."""
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"
