"""Framing: whatever the cuts, whatever the bytes, frames come out whole or are named as bad."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandboxd_proto.framing import (
    HEADER_LIMIT,
    BadFrame,
    Frame,
    FrameDecoder,
    Framing,
    frame,
)

LIMIT = 64
OPENING = (b"{", b"[", b"C", b"c")

# Bodies as a writer makes them: JSON without line ends, beginning with a bracket.
bodies = st.binary(max_size=40).map(lambda b: b'{"' + b.replace(b"\n", b"") + b"}")
framings = st.sampled_from(Framing)
# Bytes that come near to a frame, so that the decoder's states are reached and not only its door.
fragments = st.sampled_from(
    [b"Content-Length: ", b"content-length:", b"5", b"999", b"\r\n", b"\r\n\r\n", b"\n", b"{", b"[",
     b"}", b" ", b"C", b"x" * 70, b"\x00", b"\xff", b":", b"-1", b"Content-Type: a\r\n"]
)  # fmt: skip
hostile = st.lists(st.one_of(fragments, st.binary(max_size=20)), max_size=30).map(b"".join)


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    places = sorted(draw(st.sets(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def decoded(pieces: list[bytes], limit: int = LIMIT) -> list[Frame | BadFrame]:
    decoder = FrameDecoder(limit)
    return [item for piece in pieces for item in decoder.feed(piece)]


def bytewise(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


@given(st.data(), st.lists(bodies, max_size=6), framings)
def test_any_cut_gives_the_frames_that_were_sent(
    data: st.DataObject, sent: list[bytes], framing: Framing
) -> None:
    stream = b"".join(frame(body, framing) for body in sent)
    got = decoded(data.draw(cuts(stream)))
    assert [item.body for item in got if isinstance(item, Frame)] == sent
    assert len(got) == len(sent)


@given(st.data(), st.lists(bodies, min_size=1, max_size=6), framings)
def test_the_offset_is_where_the_frame_starts_in_the_stream(
    data: st.DataObject, sent: list[bytes], framing: Framing
) -> None:
    framed = [frame(body, framing) for body in sent]
    starts = [sum(map(len, framed[:n])) for n in range(len(framed))]
    got = decoded(data.draw(cuts(b"".join(framed))))
    assert [item.offset for item in got if isinstance(item, Frame)] == starts


@given(hostile)
@example(b"Content-Length: 5\r\n\r\n{")
@example(b"Content-Length: 999\r\n\r\n" + b"x" * 70 + b"\r\n\r\n")
@example(b"{" + b"x" * 70 + b"\n{}\n")
@example(b"{" * (LIMIT + 1) + b"\n")
@example(b"c" + b"x" * (HEADER_LIMIT + 10))
def test_hostile_bytes_never_raise_and_the_cut_does_not_matter(stream: bytes) -> None:
    whole, cut = decoded([stream]), decoded(bytewise(stream))
    assert whole == cut


@given(hostile)
def test_what_is_held_is_bounded(stream: bytes) -> None:
    decoder = FrameDecoder(LIMIT)
    for piece in bytewise(stream):
        decoder.feed(piece)
        assert len(decoder._buffer) <= HEADER_LIMIT + 4


def test_a_long_line_is_not_kept() -> None:
    decoder = FrameDecoder(LIMIT)
    decoder.feed(b"{")
    for _ in range(1000):
        decoder.feed(b"x" * 1000)
    assert len(decoder._buffer) <= LIMIT + 1000


def test_a_long_body_is_not_kept() -> None:
    decoder = FrameDecoder(LIMIT)
    decoder.feed(b"Content-Length: 1000000\r\n\r\n")
    for _ in range(999):
        assert decoder.feed(b"x" * 1000) == []
        assert len(decoder._buffer) == 0
    assert not decoder.idle
    decoder.feed(b"x" * 1000)
    assert decoder.idle


@pytest.mark.parametrize("start", [b"{", b" \r\n["])
def test_a_message_without_headers_is_answered_where_others_had_them(start: bytes) -> None:
    got = decoded([frame(b"{}", Framing.HEADERS) + start])
    assert isinstance(got[-1], BadFrame)
    assert got[-1].fatal
    assert "header" in (got[-1].remedy or "")


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1])
@pytest.mark.parametrize("framing", list(Framing))
@pytest.mark.parametrize("cut", [False, True])
def test_the_limit_is_exact_and_the_next_frame_is_read(
    framing: Framing, size: int, cut: bool
) -> None:
    body = b"{" + b" " * (size - 2) + b"}"
    stream = frame(body, framing) + frame(b"{}", framing)
    got = decoded(bytewise(stream) if cut else [stream])
    assert len(got) == 2
    assert isinstance(got[1], Frame)
    assert got[1].body == b"{}"
    if size <= LIMIT:
        assert got[0] == Frame(body, 0)
    else:
        assert isinstance(got[0], BadFrame)
        assert not got[0].fatal
        assert str(LIMIT) in got[0].reason


@given(st.data(), framings, st.integers(LIMIT + 1, 4 * LIMIT))
def test_one_error_for_an_oversized_frame_and_the_rest_survives(
    data: st.DataObject, framing: Framing, size: int
) -> None:
    stream = frame(b"[1]", framing) + frame(b"{" * size, framing) + frame(b"[2]", framing)
    got = decoded(data.draw(cuts(stream)))
    assert [type(item) for item in got] == [Frame, BadFrame, Frame]
    assert [item.body for item in got if isinstance(item, Frame)] == [b"[1]", b"[2]"]


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 2\r\n\r\n",
        b"content-length: 2\r\n\r\n",
        b"CONTENT-LENGTH:2\r\n\r\n",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 2\r\n\r\n",
        b"cOnTeNt-LeNgTh:   2  \r\nContent-Type: x\r\n\r\n",
        b"\r\n \tContent-Length: 2\r\n\r\n",
    ],
)
def test_header_names_in_any_case_and_content_type_is_ignored(head: bytes) -> None:
    got = decoded([head + b"{}"])
    assert [item.body for item in got if isinstance(item, Frame)] == [b"{}"]


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Type: x\r\n\r\n",
        b"Content-Length: two\r\n\r\n",
        b"Content-Length: -2\r\n\r\n",
        b"Content-Length: +2\r\n\r\n",
        b"Content-Length: 2_0\r\n\r\n",
        b"Content-Length: \xc2\xb2\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n",
        b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"C" * (HEADER_LIMIT + 1),
    ],
)
def test_headers_without_one_number_end_the_connection(head: bytes) -> None:
    for pieces in ([head], bytewise(head)):
        decoder = FrameDecoder(LIMIT)
        got = [item for piece in pieces for item in decoder.feed(piece)]
        assert len(got) == 1
        assert isinstance(got[0], BadFrame)
        assert got[0].fatal
        assert decoder.feed(b"Content-Length: 2\r\n\r\n{}") == []


@given(st.binary(min_size=1).filter(lambda b: b.lstrip(b" \t\r\n")[:1] not in (b"", *OPENING)))
def test_another_first_byte_ends_the_connection(stream: bytes) -> None:
    got = decoded([stream, b"\n{}\n"])
    assert len(got) == 1
    assert isinstance(got[0], BadFrame)
    assert got[0].fatal


@given(st.text(" \t\r\n", max_size=20), framings)
def test_blanks_before_the_first_byte_do_not_count(blanks: str, framing: Framing) -> None:
    got = decoded([blanks.encode(), frame(b"{}", framing)])
    assert got == [Frame(b"{}", len(blanks))]


def test_blank_lines_between_messages_are_no_messages() -> None:
    got = decoded([b"{}\n\n\r\n  \n[]\r\n"])
    assert [item.body.strip() for item in got if isinstance(item, Frame)] == [b"{}", b"[]"]


def test_a_half_frame_is_not_idle() -> None:
    for half in (b"{", b"Content-Len", b"Content-Length: 2\r\n\r\n", b"Content-Length: 2\r\n\r\n{"):
        decoder = FrameDecoder(LIMIT)
        assert decoder.idle
        assert decoder.feed(half) == []
        assert not decoder.idle
