"""Both streams of a command, in any chunks, at bounded cost.

Lines end at newline or carriage return and count up to MAX_LINE bytes. The first FULL_BYTES of a
stream are searched for every sign; up to ESSENTIAL_BYTES for errors about files and connections;
after that, and after EXAMINED_LINES lines that looked like errors or MOST_STEPS of work on them,
only the last TAIL_BYTES are read, at the end, with TAIL_STEPS of work. All of these are counted in
the stream, never in time: how it was cut into chunks changes nothing.

A scanner belongs to one execution. It shares nothing that changes with others, so any thread can
run it, one at a time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import lru_cache

from sandboxd.denials import claims, conclude
from sandboxd.denials.context import RunEvidence, Setting
from sandboxd.denials.explain import needs
from sandboxd.denials.explain.manifest import ExplainRequest, explanation
from sandboxd.denials.text.line_classifier import LineClassifier
from sandboxd.denials.text.phrases import SignFinder, signs_for
from sandboxd.denials.text.prefilter import Needles, essential, needles
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import StreamName
from sandboxd_proto.messages.explanation import Explanation

MAX_LINE = 4096
FULL_BYTES = 4 << 20
ESSENTIAL_BYTES = 128 << 20
EXAMINED_LINES = 2000
MOST_STEPS = 2_000_000
TAIL_STEPS = 500_000
TAIL_BYTES = 64 << 10
TAIL_LINES = 500
CONTEXT_BYTES = 1024
CONTEXT_LINES = 4
MAX_OF_A_KIND = 16
LAST_OF_A_KIND = 4

# A line and those above it → the steps that reading it took.
Examine = Callable[[str, list[str]], int]


class _Stream:
    """Cuts one stream into lines and hands over those that hold a needle."""

    def __init__(self, full: Needles, less: Needles, examine: Examine) -> None:
        self._full, self._less, self._examine = full, less, examine
        self._carry = b""
        self._overlong = False
        self._start = 0  # offset of the first byte of the carry
        self._end = 0  # offset of the next byte
        self._history = b""
        self._tail = b""
        self._examined = 0
        self.steps = 0
        self._stopped_at: int | None = None

    def feed(self, data: bytes) -> None:
        self._end += len(data)
        if len(data) >= TAIL_BYTES:
            self._tail = data[-TAIL_BYTES:]
        else:
            self._tail = (self._tail + data)[-TAIL_BYTES:]
        if self._overlong:
            data = self._leave_overlong(data)
            if self._overlong:
                return
        block = self._carry + data if self._carry else data
        cut = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if cut:
            self._lines(block[:cut], self._start)
            self._start += cut
        self._carry = block[cut:]
        if len(self._carry) > MAX_LINE:
            self._carry = self._carry[:MAX_LINE]
            self._overlong = True

    def finish(self) -> None:
        if self._carry:
            self._lines(self._carry, self._start)
        self._read_tail()

    def _leave_overlong(self, data: bytes) -> bytes:
        """Drop the rest of a line that is too long; its beginning is read when it ends."""
        ends = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
        if not ends:
            return b""
        self._lines(self._carry + b"\n", self._start)
        rest = data[min(ends) + 1 :]
        self._carry, self._overlong = b"", False
        self._start = self._end - len(rest)
        return rest

    def _lines(self, block: bytes, offset: int) -> None:
        """Read the lines of `block`, which starts at `offset` and at a line."""
        if self._stopped_at is None:
            for part, at, words in self._tiers(block, offset):
                self._search(part, at, words)
        self._history = (self._history + block[-CONTEXT_BYTES:])[-CONTEXT_BYTES:]

    def _tiers(self, block: bytes, offset: int) -> list[tuple[bytes, int, Needles]]:
        """`block` cut where the line that starts at a tier's border starts."""
        border = _line_at(block, FULL_BYTES - offset)
        end = _line_at(block, ESSENTIAL_BYTES - offset)
        parts = [(block[:border], offset, self._full)]
        parts.append((block[border:end], offset + border, self._less))
        return [part for part in parts if part[0]]

    def _search(self, block: bytes, offset: int, words: Needles) -> None:
        text = block.replace(b"\r", b"\n")
        for start, end in words.lines(text):
            line = text[start:end][:MAX_LINE]
            if end - start > MAX_LINE and not words.within(line):
                continue
            if self._examined >= EXAMINED_LINES or self.steps >= MOST_STEPS:
                self._stopped_at = offset + start
                return
            self._examined += 1
            above = text[max(0, start - CONTEXT_BYTES) : start]
            if start < CONTEXT_BYTES:
                above = (self._history + above)[-CONTEXT_BYTES:]
            self._read(line, above)

    def _read_tail(self) -> None:
        """The last lines, as far as they were not searched for everything already."""
        begin = self._end - len(self._tail)
        unread = self._stopped_at if self._stopped_at is not None else FULL_BYTES
        if self._end <= unread:
            return
        text = self._tail.replace(b"\r", b"\n")
        first = 0 if begin == 0 else text.find(b"\n") + 1
        lines = []
        at = first
        for line in text[first:].split(b"\n"):
            if begin + at >= unread:
                lines.append((at, line[:MAX_LINE]))
            at += len(line) + 1
        most = self.steps + TAIL_STEPS
        # The last lines are the most useful: they are read first if not all can be read.
        for at, line in reversed(lines[-TAIL_LINES:]):
            if self.steps < most and self._full.within(line):
                self._read(line, text[max(0, at - CONTEXT_BYTES) : at])

    def _read(self, line: bytes, above: bytes) -> None:
        # The first piece may be the end of a line that starts further up.
        first = 1 if len(above) >= CONTEXT_BYTES else 0
        before = above.split(b"\n")[first:-1]
        texts = [text.decode("utf-8", "replace") for text in before[-CONTEXT_LINES:]]
        self.steps += self._examine(line.decode("utf-8", "replace"), texts)


def _line_at(block: bytes, position: int) -> int:
    """Where the first line that starts at or after `position` starts."""
    if position <= 0:
        return 0
    if position >= len(block):
        return len(block)
    found = (block.find(b"\n", position - 1), block.find(b"\r", position - 1))
    ends = [at for at in found if at >= 0]
    return min(ends) + 1 if ends else len(block)


@lru_cache(maxsize=32)
def _words(
    platform: str, translations: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[SignFinder, Needles, Needles]:
    """The search terms: shared by all commands with the same languages, immutable."""
    signs = signs_for(platform, dict(translations))
    return SignFinder(signs), needles(signs), essential(signs)


class _Kept:
    """Denials by kind and target, each once, and not too many of a kind."""

    def __init__(self) -> None:
        self.denials: list[Denial] = []
        self._known: set[tuple[str, str | None]] = set()
        self._of_kind: Counter[str] = Counter()
        self._last: dict[str, deque[Denial]] = {}

    def add(self, denial: Denial) -> None:
        key = (denial.kind, denial.target)
        if key in self._known:
            return
        if self._of_kind[denial.kind] < MAX_OF_A_KIND:
            self._known.add(key)
            self._of_kind[denial.kind] += 1
            self.denials.append(denial)
        else:
            self._last.setdefault(denial.kind, deque(maxlen=LAST_OF_A_KIND)).append(denial)

    def all(self) -> list[Denial]:
        """With the last ones of each kind: the reason of a failure is often the last message, and
        a file that is printed before must not displace it."""
        return [*self.denials, *(denial for last in self._last.values() for denial in last)]


class StreamScanner:
    """Denials of one execution: `feed` while it runs, `finish` once when it has ended."""

    def __init__(
        self, setting: Setting, translations: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        finder, full, less = _words(setting.platform, tuple((translations or {}).items()))
        self._classifier = LineClassifier(setting, finder)
        self._said = _Kept()
        self._stdout_notes = _Kept()
        self._streams = {
            name: _Stream(full, less, self._reader(name)) for name in ("stdout", "stderr")
        }

    def feed(self, stream: StreamName, data: bytes) -> list[Denial]:
        """The claims in `data`, each once. stdout alone makes no claim."""
        before = len(self._said.denials)
        self._streams[stream].feed(data)
        return claims.publish_live(self._classifier.setting, self._said.denials[before:])

    def finish(self, facts: RunEvidence) -> list[Denial]:
        """All denials of the execution. Those of `feed` may have a higher confidence now."""
        for stream in self._streams.values():
            stream.finish()
        found = conclude.conclude(
            self._classifier, facts, self._said.all(), self._stdout_notes.all()
        )
        return claims.publish(self._classifier.setting, found, self._classifier.asked_for)

    def explain(
        self, facts: RunEvidence, denials: list[Denial], asked: ExplainRequest
    ) -> Explanation:
        """After `finish`, and only with a complete kernel report (`facts.explained`)."""
        found = needs.find_needs(self._classifier, facts, self._said.denials)
        return explanation(
            self._classifier.setting, found, denials, asked,
            failed=facts.failed, appeared=facts.protected,
        )  # fmt: skip

    def _reader(self, name: str) -> Examine:
        stream: StreamName = "stdout" if name == "stdout" else "stderr"

        kept = self._said if self._classifier.trusts(stream) else self._stdout_notes

        def read(line: str, before: list[str]) -> int:
            spent = self._classifier.steps
            for denial in self._classifier.examine(line, before, stream):
                kept.add(denial)
            return self._classifier.steps - spent

        return read
