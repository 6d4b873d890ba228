"""The server name in a TLS ClientHello. Pure, and strict: what it cannot read it does not pass.

The hello may be cut into records at any place. Extensions other than the server name are skipped;
an encrypted hello shows its outer name only.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Hello:
    """`server_name` as it was sent; None when there is none."""

    server_name: str | None


class _Reader:
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
    """HelloIncomplete until the whole hello is there, HelloMalformed if it never will be one."""
    message = _message(data)
    reader = _Reader(message)
    reader.take(2 + 32)  # version, random
    reader.vector(1)  # session
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression
    if not reader.rest:
        return Hello(None)
    extensions = _Reader(reader.vector(2))
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


def _message(data: bytes | bytearray) -> bytes:
    """The handshake message, put together from its records."""
    message = bytearray()
    at = 0
    while True:
        if len(message) >= 4:
            size = int.from_bytes(message[1:4], "big")
            if message[0] != _CLIENT_HELLO or size > MAX_HELLO:
                raise HelloMalformed("not a ClientHello")
            if len(message) >= 4 + size:
                return bytes(message[4 : 4 + size])
        if len(data) - at < 5:
            raise HelloIncomplete
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        if data[at] != HANDSHAKE or data[at + 1] != 3 or not 0 < size <= 1 << 14:
            raise HelloMalformed("not a handshake record")
        if len(data) - at - 5 < size:
            raise HelloIncomplete
        message += data[at + 5 : at + 5 + size]
        at += 5 + size
        if at > 2 * MAX_HELLO:
            raise HelloMalformed("too long")


def _names(content: bytes) -> list[str]:
    reader = _Reader(content)
    listed = _Reader(reader.vector(2))
    if reader.rest:
        raise HelloMalformed("bytes after the server names")
    names = []
    while listed.rest:
        kind, name = listed.number(1), listed.vector(2)
        if kind != _HOST_NAME:
            raise HelloMalformed("an unknown kind of server name")
        names.append(name.decode("ascii", "backslashreplace"))
    return names
