"""Requests that switch a connection to another protocol, and the answers that agree to it. Pure.

After a switch the connection passes unread. A server that answers 101 without meaning it (some let
the request choose the status) would read further requests from it, so the answer has to agree to
what was asked for, and to a WebSocket with the key's digest (RFC 6455).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

from sandboxd.egress.http.head import RequestHead

MAX_ANSWER = 16 * 1024
# These name no further host; HTTP/2, SPDY and TLS within HTTP would name some unseen.
_OPAQUE = frozenset({"websocket", "tcp"})
_SWITCHING = re.compile(rb"HTTP/1\.[01] 101(?![0-9])")
_START = 13  # bytes of it
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def wants_upgrade(head: RequestHead) -> bool:
    """Whether it upgrades to a protocol that names no further host."""
    upgrade = head.tokens("upgrade")
    return (
        bool(upgrade) and upgrade <= _OPAQUE and "upgrade" in head.tokens("connection")
        and head.minor == 1 and not head.has_body
    )  # fmt: skip


def is_undecided(answer: bytes) -> bool:
    """Whether more of an answer is needed to know whether it switches."""
    if len(answer) < _START:
        return True
    switching = _SWITCHING.match(answer) is not None
    return switching and b"\r\n\r\n" not in answer and len(answer) < MAX_ANSWER


def is_accepted(answer: bytes, asked: RequestHead) -> bool:
    """Whether the whole head of an answer agrees to the upgrade that was asked for."""
    head, end, _ = answer.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    if not end or _SWITCHING.match(line) is None or not wants_upgrade(asked):
        return False
    agreed = {token.lower() for value in _values(fields, b"upgrade") for token in value.split(b",")}
    protocols = {token.strip().decode("latin-1") for token in agreed}
    if len(protocols) != 1 or not protocols <= asked.tokens("upgrade"):
        return False
    if protocols == {"websocket"}:
        return _values(fields, b"sec-websocket-accept") == [_digest(asked)]
    return True


def _values(fields: list[bytes], name: bytes) -> list[bytes]:
    found = (field.partition(b":") for field in fields)
    return [value.strip(b" \t") for key, _, value in found if key.strip().lower() == name]


def _digest(asked: RequestHead) -> bytes | None:
    keys = asked.all("sec-websocket-key")
    try:
        if len(keys) != 1 or len(base64.b64decode(keys[0], validate=True)) != 16:
            return None
    except (binascii.Error, ValueError):
        return None
    digest = hashlib.sha1(keys[0].encode() + _GUID, usedforsecurity=False).digest()
    return base64.b64encode(digest)
