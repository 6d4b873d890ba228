"""Parse the beginning of an SSH connection strictly; at the web's ports only this passes unread.

RFC 4253: a line that names version and software, then a packet with the lists of algorithms.
"""

from __future__ import annotations

import re

from sandboxd.egress.sniffing.first_line import is_request

PREFIX = b"SSH-2.0-"
MAX_BANNER = 255
MAX_PACKET = 35000
_BANNER = re.compile(rb"SSH-2\.0-[\x21-\x7e]+(?: [\x20-\x7e]*)?\r?\n\Z")
_KEXINIT, _COOKIE, _LISTS = 20, 16, 10
_NAMES = re.compile(rb"[\x21-\x7e]*\Z")
_HOST = re.compile(rb"host[\x00-\x20]*:", re.IGNORECASE)


class SshMalformed(Exception):
    """The bytes are not the beginning of an SSH client's connection."""


def banner(data: bytes | bytearray) -> bytes | None:
    """The client's version line with its line end; None while it is incomplete."""
    end = data.find(b"\n", 0, MAX_BANNER)
    if end < 0:
        if len(data) >= MAX_BANNER or not bytes(data[: len(PREFIX)]) == PREFIX[: len(data)]:
            raise SshMalformed("the line of SSH's version is not one")
        return None
    line = bytes(data[: end + 1])
    if not _BANNER.match(line) or is_request(line):
        raise SshMalformed("the line of SSH's version is not one")
    return line


def first_packet(data: bytes | bytearray) -> int | None:
    """The size of the first key exchange packet; None while it is incomplete."""
    if len(data) < 4:
        return None
    size = int.from_bytes(data[:4], "big")
    if not 2 <= size <= MAX_PACKET:
        raise SshMalformed("the first packet of SSH is not one")
    if len(data) < 4 + size:
        return None
    packet = bytes(data[4 : 4 + size])
    padding = packet[0]
    if padding < 4 or padding + 1 >= size:
        raise SshMalformed("the first packet of SSH is not one")
    _check_exchange(packet[1 : size - padding])
    if _HOST.search(packet):
        raise SshMalformed("the first packet of SSH names a host")
    return 4 + size


def _check_exchange(payload: bytes) -> None:
    at = 1 + _COOKIE
    for _ in range(_LISTS):
        size = int.from_bytes(payload[at : at + 4], "big")
        names = payload[at + 4 : at + 4 + size]
        if len(names) != size or not _NAMES.match(names):
            raise SshMalformed("the lists of algorithms of SSH are not lists")
        at += 4 + size
    # Whether a guess follows, and a number that is reserved.
    if payload[0] != _KEXINIT or len(payload) != at + 5 or payload[at + 1 :] != bytes(4):
        raise SshMalformed("the first packet of SSH does not exchange algorithms")
