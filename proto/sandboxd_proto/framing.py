"""Bytes to frames and back, without I/O: one message a line, or LSP's Content-Length headers.

The first byte of a connection that is not blank decides its framing, so one socket serves both. The
decoder holds at most one frame (`limit` bytes) and skips larger ones, so a connection stays usable
after an oversized message if the framing shows where it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

FRAME_LIMIT = 16 * 1024 * 1024
HEADER_LIMIT = 8 * 1024
_BLANK = b" \t\r\n"
_HEADER_END = b"\r\n\r\n"
_HEADER_REMEDY = "send `Content-Length: N` and an empty line, then N bytes of JSON"


class Framing(Enum):
    LINES = "lines"
    HEADERS = "headers"


@dataclass(frozen=True, slots=True)
class Frame:
    """One message, and the stream position of its first byte (for passed descriptors)."""

    body: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class BadFrame:
    """A message that cannot be parsed. `fatal`: the rest of the stream cannot be parsed."""

    reason: str
    fatal: bool
    remedy: str | None = None


class FrameDecoder:
    """Takes the bytes of a stream in any chunks; returns the frames that are complete."""

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self.framing: Framing | None = None
        self._limit = limit
        self._buffer = bytearray()
        self._offset = 0  # stream position of the buffer's first byte
        self._scanned = 0  # how much of the buffer holds no line end for certain
        self._skip = 0  # bytes of an oversized body still to be dropped
        self._skip_line = False
        self._body: tuple[int, int] | None = None  # (length, offset) once headers are read
        self._dead = False

    @property
    def idle(self) -> bool:
        """Whether no frame is incomplete: the peer may close here without losing a message."""
        return not self._buffer and not self._skip and self._body is None

    @property
    def held(self) -> int:
        """Bytes of a frame that is incomplete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame | BadFrame]:
        if self._dead:
            return []
        if self._is_one_line(data):
            start, self._offset = self._offset, self._offset + len(data)
            return [Frame(data[:-1], start)]
        self._buffer += data
        out: list[Frame | BadFrame] = []
        while not self._dead:
            item = self._next()
            if item is None:
                break
            out.append(item)
            if isinstance(item, BadFrame) and item.fatal:
                self._dead = True
                self._buffer.clear()
        return out

    def _is_one_line(self, data: bytes) -> bool:
        """As most clients send them: one whole message, which need not go through the buffer."""
        return (
            self.framing is Framing.LINES
            and not self._buffer
            and not self._skip_line
            and data[:1] in (b"{", b"[")
            and data.find(b"\n") == len(data) - 1
            and len(data) <= self._limit
        )

    def _next(self) -> Frame | BadFrame | None:
        if self.framing is None and not self._detect():
            return self._undetected()
        return self._next_line() if self.framing is Framing.LINES else self._next_headers()

    def _detect(self) -> bool:
        self._drop_blank()
        if not self._buffer:
            return False
        first = bytes(self._buffer[0:1])
        if first in (b"{", b"["):
            self.framing = Framing.LINES
        elif first in (b"C", b"c"):
            self.framing = Framing.HEADERS
        return self.framing is not None

    def _undetected(self) -> BadFrame | None:
        if not self._buffer:
            return None
        return BadFrame(
            "the first byte is neither '{' nor '[' (one message a line) "
            "nor 'C' (Content-Length headers)",
            fatal=True,
            remedy="send one JSON object a line, or a Content-Length header before each message",
        )

    # one message a line

    def _next_line(self) -> Frame | BadFrame | None:
        while True:
            end = self._buffer.find(b"\n", self._scanned)
            if end < 0:
                return self._line_without_end()
            start, body = self._offset, bytes(self._buffer[:end])
            self._consume(end + 1)
            if self._skip_line:
                self._skip_line = False
                continue
            if len(body) > self._limit:
                return self._too_large()
            if body.strip(_BLANK):
                return Frame(body, start + len(body) - len(body.lstrip(_BLANK)))

    def _line_without_end(self) -> BadFrame | None:
        self._scanned = len(self._buffer)
        if self._skip_line:
            self._consume(len(self._buffer))
            return None
        if len(self._buffer) <= self._limit:
            return None
        self._skip_line = True
        self._consume(len(self._buffer))
        return self._too_large()

    # Content-Length headers

    def _next_headers(self) -> Frame | BadFrame | None:
        if self._skip:
            dropped = min(self._skip, len(self._buffer))
            self._skip -= dropped
            self._consume(dropped)
            if self._skip:
                return None
        if self._body is None:
            bad = self._read_headers()
            if bad is not None or self._body is None:
                return bad
        length, offset = self._body
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        self._consume(length)
        self._body = None
        return Frame(body, offset)

    def _read_headers(self) -> BadFrame | None:
        self._drop_blank()
        if self._buffer.startswith((b"{", b"[")):
            # Without this the rest of the connection would be read as one header, unanswered.
            return BadFrame(
                "a message without a Content-Length header, on a connection that began with one",
                fatal=True,
                remedy="send the header before each message, or before none on a new connection",
            )
        end = self._buffer.find(_HEADER_END, max(0, self._scanned - 3), HEADER_LIMIT + 4)
        if end < 0:
            self._scanned = len(self._buffer)
            if len(self._buffer) > HEADER_LIMIT:
                return BadFrame(
                    f"headers longer than {HEADER_LIMIT} bytes", fatal=True, remedy=_HEADER_REMEDY
                )
            return None
        offset, head = self._offset, bytes(self._buffer[:end])
        self._consume(end + len(_HEADER_END))
        length = _content_length(head)
        if length is None:
            return BadFrame(
                "no Content-Length header with one decimal number",
                fatal=True,
                remedy=_HEADER_REMEDY,
            )
        if length > self._limit:
            self._skip = length
            return self._too_large()
        self._body = (length, offset)
        return None

    def _too_large(self) -> BadFrame:
        return BadFrame(
            f"a message may have at most {self._limit} bytes",
            fatal=False,
            remedy="send it in parts: execution/write for input, fs/write with append for a file",
        )

    def _drop_blank(self) -> None:
        blank = len(self._buffer) - len(self._buffer.lstrip(_BLANK))
        if blank:
            self._consume(blank)

    def _consume(self, count: int) -> None:
        del self._buffer[:count]
        self._offset += count
        self._scanned = 0


def _content_length(head: bytes) -> int | None:
    found: set[bytes] = set()
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            found.add(value.strip())
    if len(found) != 1:
        return None
    digits = found.pop()
    # isdigit() alone accepts superscripts in str, but not in bytes; 18 digits bound the number.
    return int(digits) if digits.isdigit() and len(digits) <= 18 else None


def frame(body: bytes, framing: Framing) -> bytes:
    """`body` (JSON without line ends, as msgspec writes it) ready for the socket."""
    if framing is Framing.HEADERS:
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    return body + b"\n"
