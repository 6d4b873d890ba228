"""Parse the server name in a TLS ClientHello. Pure and strict: a malformed hello is refused.

The hello may be split into records at any place. Extensions other than the server name are skipped.
An encrypted hello shows its outer name only.
"""

from __future__ import annotations

import msgspec

HANDSHAKE = 22
# Far more than a hello with several post-quantum keys needs.
MAX_HELLO = 64 * 1024
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_HOST_NAME = 0


class HelloMalformed(Exception):
    pass


class HelloIncomplete(Exception):
    """More bytes are needed."""


class Hello(msgspec.Struct, frozen=True):
    """`server_name` as it was sent; None when there is none."""

    server_name: str | None


class _HelloReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise HelloMalformed("a field is longer than what contains it")
        self._at += size
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    @property
    def rest(self) -> int:
        return len(self._data) - self._at


def parse(data: bytes | bytearray) -> Hello:
    """HelloIncomplete while bytes are missing, HelloMalformed if it is not a hello."""
    return HelloReader().read(data)


class HelloReader:
    """Parses a hello that arrives in pieces: each record is parsed once."""

    def __init__(self) -> None:
        self._message = bytearray()
        self._at = 0

    def read(self, data: bytes | bytearray) -> Hello:
        """`data`: all bytes so far."""
        while not self._is_whole():
            self._take_record(data)
        size = int.from_bytes(self._message[1:4], "big")
        return _hello(bytes(self._message[4 : 4 + size]))

    def _is_whole(self) -> bool:
        message = self._message
        if len(message) < 4:
            return False
        size = int.from_bytes(message[1:4], "big")
        if message[0] != _CLIENT_HELLO or size > MAX_HELLO:
            raise HelloMalformed("not a ClientHello")
        return len(message) >= 4 + size

    def _take_record(self, data: bytes | bytearray) -> None:
        at = self._at
        if at > 2 * MAX_HELLO:
            raise HelloMalformed("too long")
        if len(data) - at < 5:
            raise HelloIncomplete
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        if data[at] != HANDSHAKE or data[at + 1] != 3 or not 0 < size <= 1 << 14:
            raise HelloMalformed("not a handshake record")
        if len(data) - at - 5 < size:
            raise HelloIncomplete
        self._message += data[at + 5 : at + 5 + size]
        self._at = at + 5 + size


def _hello(message: bytes) -> Hello:
    reader = _HelloReader(message)
    reader.take(2 + 32)  # version, random
    reader.vector(1)  # session
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression
    if not reader.rest:
        return Hello(None)
    extensions = _HelloReader(reader.vector(2))
    if reader.rest:
        raise HelloMalformed("bytes after the extensions")
    names: list[str] = []
    while extensions.rest:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            names += _names(content)
    if len(names) > 1:
        raise HelloMalformed("more than one server name")
    return Hello(names[0] if names else None)


def _names(content: bytes) -> list[str]:
    reader = _HelloReader(content)
    listed = _HelloReader(reader.vector(2))
    if reader.rest:
        raise HelloMalformed("bytes after the server names")
    names = []
    while listed.rest:
        kind, name = listed.number(1), listed.vector(2)
        if kind != _HOST_NAME:
            raise HelloMalformed("an unknown kind of server name")
        names.append(name.decode("ascii", "backslashreplace"))
    return names
