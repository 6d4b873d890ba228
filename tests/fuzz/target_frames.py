"""Frames of the daemon's socket: in any cuts the same, bounded, and what was framed comes back."""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.driver import Target

from sandboxd_proto.framing import BadFrame, Frame, FrameDecoder, Framing, frame

LIMIT = 4096
BODY = b'{"jsonrpc":"2.0","id":1,"method":"status"}'


def seeds() -> Sequence[bytes]:
    lines, headers = (frame(BODY, framing) for framing in (Framing.LINES, Framing.HEADERS))
    return [
        lines, headers, lines * 3, headers * 3, b"\n \t" + lines, b"[" + b"1," * 50 + b"1]\n",
        b"Content-Type: x\r\n" + headers, b"Content-Length: 99999\r\n\r\n" + BODY,
        b"{" + b"x" * (LIMIT + 10) + b"}\n" + lines,
    ]  # fmt: skip


def _frames(data: bytes, step: int) -> list[Frame | BadFrame]:
    decoder, found = FrameDecoder(LIMIT), []
    for at in range(0, len(data), step):
        found += decoder.feed(data[at : at + step])
        assert len(decoder._buffer) <= LIMIT + 8192 + step
    return found


def check(data: bytes) -> None:
    whole = _frames(data, max(1, len(data)))
    assert _frames(data, 5) == whole
    assert sum(len(one.body) for one in whole if isinstance(one, Frame)) <= len(data)
    for one in whole:
        if isinstance(one, Frame):
            assert len(one.body) <= LIMIT
            if data.lstrip(b" \t\r\n")[:1] in b"{[":
                assert data[one.offset : one.offset + 1] == one.body.lstrip(b" \t\r\n")[:1]
    body = b"{" + data.replace(b"\n", b"").replace(b"\r", b"")[: LIMIT - 2] + b"}"
    for framing in Framing:
        back = FrameDecoder(LIMIT).feed(frame(body, framing))
        assert [one.body for one in back if isinstance(one, Frame)] == [body]


TARGET = Target("frames", seeds, check, words=(b"Content-Length: 3\r\n\r\n", b"\n", b"{", b"[]"))
