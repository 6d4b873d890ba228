"""Whether bytes that pass unread could be an HTTP request for a lenient server. Pure.

Servers differ in what they accept: blank lines before a request, any bytes as a method, a line
that ends in LF alone, no version at all (HTTP/0.9). All of them require a first line that holds
` HTTP/` or a method and a path. Bytes pass unread only while the first line holds neither.
"""

from __future__ import annotations

import re

# After this many bytes the gate no longer waits for the end of the first line.
MAX_HELD = 8 * 1024
# No server reads a longer request line: the largest known limit, Go's, is just above 1 MiB.
MAX_LINE = 4 << 20
_HEAD = 4096
_OVERLAP = 5
# Control characters, and what str.split takes for blanks in Latin-1.
_BLANK = bytes(range(0x21)) + b"\x7f\x85\xa0"
_SPACE = rb"[\x09-\x0d\x1c-\x20\x85\xa0]"
_VERSION = re.compile(_SPACE + rb"http/", re.IGNORECASE)
# Without a version the method has to be text: binary protocols hold a blank and a slash by chance.
_SIMPLE = re.compile(rb"GET" + _SPACE + rb"|[!-~]+" + _SPACE + rb"+(?:/|(?i:https?:))")
_PREFACE = re.compile(rb"PROXY[ \t]")  # HAProxy's: the request comes in the second line
_PREFACE_2 = b"\r\n\r\n\0\r\nQUIT\n"
_TEXT = re.compile(rb"[\t\r\n\x20-\x7e]*\Z")


def holds_version(data: bytes | bytearray) -> bool:
    """Whether ` HTTP/` is in it, in any case and after any kind of blank."""
    return _VERSION.search(data) is not None


def is_request(line: bytes | bytearray) -> bool:
    """Whether a server could read `line` as the first of a request, or of what precedes one."""
    text = bytes(line).strip(_BLANK)
    return bool(
        holds_version(b" " + line) or _SIMPLE.match(text) or _SIMPLE.match(text + b" ")
        or _PREFACE.match(text)
    )  # fmt: skip


def first_line(data: bytes | bytearray) -> bytes | None:
    """The first non-blank line without its line end; None while it is incomplete."""
    line, newline, _ = bytes(data).lstrip(_BLANK).partition(b"\n")
    return line if newline else None


def could_be_http(data: bytes | bytearray) -> bool | None:
    """Whether a server could parse a stream with this beginning as HTTP. None: incomplete line."""
    if data.startswith(_PREFACE_2):
        return True
    line = first_line(data)
    if line is not None:
        return is_request(line)
    if holds_version(data):
        return True
    if len(data) >= MAX_HELD:
        return is_request(data)
    return None if _TEXT.match(data) else False


class RequestInStream(Exception):
    """A stream that was not classified as HTTP contains a request."""


class LineGuard:
    """Checks bytes that pass unread until their first line has ended.

    The server does not act on a part of a line, so the bytes that were already sent do no harm.
    """

    def __init__(self, *, is_tls: bool = False) -> None:
        self.passed = False
        self._is_tls = is_tls  # no server parses a TLS hello as a method without a version
        self._head = bytearray()
        self._tail = b" "  # the beginning is like a blank
        self._size = 0

    def feed(self, data: bytes) -> None:
        """RequestInStream: `data` would complete a request line and must not be sent on."""
        if self.passed:
            return
        self._size += len(data)
        before = self._tail
        if not self._head:
            stripped = data.lstrip(_BLANK)
            before += data[: len(data) - len(stripped)][-_OVERLAP:]
            data = stripped
        line, newline, _ = data.partition(b"\n")
        self._head += line[: _HEAD - len(self._head)]
        begins = b"" if self._is_tls else bytes(self._head) + newline
        if holds_version(before + line) or _SIMPLE.match(begins) or _PREFACE.match(begins):
            raise RequestInStream
        self._tail = (before + line)[-_OVERLAP:]
        self.passed = bool(newline) or self._size > MAX_LINE
