"""Whatever is printed, in whatever chunks: bounded, deterministic, never surer than the plan."""

from __future__ import annotations

from itertools import pairwise

import pytest
from denials.messages import NOT_OURS, OURS
from denials.settings import ON_HOST, denials, host, open_setting, setting
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.denials import RunEvidence, StreamScanner
from sandboxd.denials.text import scanner as limits_of
from sandboxd.denials.text.phrases import COMMON, signs_for
from sandboxd.denials.text.prefilter import needles
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import StreamName

LINES = [text for text, _, _ in OURS] + NOT_OURS
PHRASES = [text for sign in COMMON for text in (*sign.libc, *sign.phrases, *sign.codes)]
pieces = st.one_of(
    st.sampled_from(LINES),
    st.sampled_from(PHRASES),
    st.sampled_from(sorted(ON_HOST)),
    st.sampled_from(["touch: ", "'", "‘", "’", ": ", "\r", "\n", "(", "12", "host ", "1.1.1.1"]),
    st.text(max_size=20),
)
texts = st.lists(pieces, max_size=25).map("".join)
exits = st.sampled_from([0, 1, 2, 6, 100, 126, 127, 128, 137, 153, 159, 255])


@given(stdout=texts, stderr=texts, code=exits, argv=st.lists(st.sampled_from(LINES), max_size=3))
def test_a_plan_that_allows_everything_never_denies_with_high_confidence(
    stdout: str, stderr: str, code: int, argv: list[str]
) -> None:
    where = open_setting("sh", "-c", *argv, view=host(pids=range(9999), ports=range(9999)))
    printed = stdout.encode("utf-8", "replace").decode()
    found = denials(
        where, stderr.encode("utf-8", "replace"), RunEvidence(exit_code=code), stdout=printed
    )
    assert [d for d in found if d.confidence == "high"] == []
    assert {d.kind for d in found} <= {"process", "syscall"}


def test_nothing_is_read_only_where_everything_is_writable() -> None:
    text = "cannot open: Read-only file system\n"
    assert denials(open_setting("perl"), text) == []
    assert [d.confidence for d in denials(setting("perl"), text)] == ["low"]


def test_the_same_lines_are_denials_under_a_plan_that_restricts() -> None:
    """The control of the property: its inputs are able to raise denials of every file kind."""
    found = denials(setting(), "\n".join(LINES))
    assert {d.kind for d in found if d.confidence == "medium"} >= {
        "filesystem_read", "filesystem_write", "protected_path", "network",
    }  # fmt: skip


def _run(data: bytes, cuts: list[int], stream: StreamName) -> list[Denial]:
    scanner = StreamScanner(setting("sh", "-c", "make"))
    seen: list[Denial] = []
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, end in pairwise(edges):
        seen += scanner.feed(stream, data[start:end])
    final = scanner.finish(RunEvidence(exit_code=1))
    assert {(d.kind, d.target) for d in seen} <= {(d.kind, d.target) for d in final}
    assert {(d.confidence, d.remedy is None, d.claimed) for d in seen} <= {("low", True, True)}
    return final


@pytest.mark.parametrize("text", LINES)
def test_single_bytes_say_what_the_whole_says(text: str) -> None:
    raw = text.encode() + b"\n"
    assert _run(raw, list(range(len(raw))), "stderr") == _run(raw, [], "stderr")


@given(data=texts, cuts=st.lists(st.integers(0, 10_000), max_size=12))
def test_chunking_changes_nothing(data: str, cuts: list[int]) -> None:
    raw = data.encode("utf-8", "replace")
    for stream in ("stderr", "stdout"):
        name: StreamName = "stderr" if stream == "stderr" else "stdout"
        assert _run(raw, cuts, name) == _run(raw, [], name)


@given(
    data=st.lists(st.sampled_from(["x" * 40, "\n", "\r", *LINES[:12]]), max_size=40),
    cuts=st.lists(st.integers(0, 4000), max_size=12),
)
def test_chunking_changes_nothing_where_every_bound_is_reached(
    data: list[str], cuts: list[int]
) -> None:
    bounds = {
        "MAX_LINE": 100, "FULL_BYTES": 400, "ESSENTIAL_BYTES": 900, "EXAMINED_LINES": 4,
        "TAIL_BYTES": 300, "TAIL_LINES": 3, "CONTEXT_BYTES": 60,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bounds.items():
            patch.setattr(limits_of, name, value)
        raw = "".join(data).encode()
        assert _run(raw, cuts, "stderr") == _run(raw, [], "stderr")


@given(data=st.binary(max_size=400))
def test_hostile_bytes_are_only_bytes(data: bytes) -> None:
    denials(setting(), data + b": Read-only file system\n" + data)


def test_memory_stays_bounded_and_the_last_lines_are_still_read() -> None:
    scanner = StreamScanner(setting())
    flood = b"".join(
        b"touch: cannot touch '/w/out/%d': Read-only file system\n" % n for n in range(2000)
    )
    for _ in range(20):
        scanner.feed("stderr", flood)
        scanner.feed("stdout", b"x" * 65536)
    scanner.feed("stderr", b"curl: (6) Could not resolve host: example.org\n")
    held = sum(
        len(part)
        for stream in scanner._streams.values()
        for part in (stream._carry, stream._history, stream._tail)
    )
    assert held <= 2 * (limits_of.MAX_LINE + limits_of.CONTEXT_BYTES + limits_of.TAIL_BYTES)
    found = scanner.finish(RunEvidence(exit_code=1))
    assert len(found) <= 2 * limits_of.MAX_OF_A_KIND
    assert "example.org" in {d.target for d in found}


def test_a_denial_in_the_last_lines_of_a_long_stream_is_found() -> None:
    scanner = StreamScanner(setting())
    for _ in range(80):
        scanner.feed("stdout", b"all is well here\n" * 4096)
    scanner.feed("stdout", b"curl: (6) Could not resolve host: example.org\n")
    assert [d.target for d in scanner.finish(RunEvidence(exit_code=1))] == ["example.org"]


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_every_phrase_is_covered_by_a_needle(platform: str) -> None:
    signs = signs_for(platform)
    words = needles(signs)
    for sign in signs:
        texts = {*sign.codes, *sign.phrases}
        # Codes are compared exactly; a phrase may stand at the start of a sentence.
        texts |= {text[:1].upper() + text[1:] for text in sign.phrases}
        texts |= {text[:1].lower() + text[1:] for text in sign.phrases if text[1:2].islower()}
        for text in texts:
            assert any(word in text.encode() for word in words.words), text


WORDS = needles(COMMON)
parts = st.one_of(
    st.sampled_from(WORDS.words),
    st.builds(lambda word, size: word[:size], st.sampled_from(WORDS.words), st.integers(0, 8)),
    st.sampled_from([b"\n", b"\r", b" ", b"x" * limits_of.MAX_LINE]),
    st.binary(max_size=8),
)


@given(data=st.lists(parts, max_size=40).map(b"".join), cuts=st.lists(st.integers(0, 9000)))
def test_one_pass_finds_the_lines_that_a_search_for_each_needle_finds(
    data: bytes, cuts: list[int]
) -> None:
    """Needles overlap, are cut short, and lie beyond the part of a line that counts."""
    read: list[bytes] = []

    def examine(line: str, above: list[str]) -> int:
        read.append(line.encode())
        return 0

    stream = limits_of._Stream(WORDS, WORDS, examine)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in pairwise(edges):
        stream.feed(data[begin:end])
    stream.finish()
    lines = [line[: limits_of.MAX_LINE] for line in data.replace(b"\r", b"\n").split(b"\n")]
    wanted = [line for line in lines if any(word in line for word in WORDS.words)]
    assert read == [line.decode("utf-8", "replace").encode() for line in wanted]
