"""Find the lines of a block of output that the classifier has to read, cheaply.

The needles are fixed strings, and all of them are searched in one pass (Aho-Corasick). Every text
of a sign holds one of its needles; the first letter is left out where programs vary its case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ahocorasick_rs import BytesAhoCorasick

from sandboxd.denials.text.phrases import Sign

# Short common parts stand for many phrases at once.
_SHARED = (
    "enied", "ermitted", "ead-only", "eadonly", "o such ", "not found", "nonexistent",
    "find module", "open file", "annot ", "an't ", "ould not ", "ouldn't ", "ailed to ",
    "nable to ", "esol", "nreachable", "onnect", "emory", "llocat", "rivileges", "xceeded",
)  # fmt: skip
# After the first megabytes only errors about files and connections are searched.
ESSENTIAL = ("ead-only file system", "ermission denied", "nreachable", "o such file or directory")


class Needles:
    """Byte strings without line ends. Immutable."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self.words = tuple(words)
        self._automaton = BytesAhoCorasick(self.words)

    def within(self, text: bytes) -> bool:
        return bool(self._automaton.find_matches_as_indexes(text))

    def lines(self, text: bytes) -> Iterator[tuple[int, int]]:
        """(start, end) of each line with a needle in it, in order; lines end at a newline."""
        past = 0
        for _, at, _ in self._automaton.find_matches_as_indexes(text):
            if at < past:
                continue
            end = text.find(b"\n", at)
            past = end if end >= 0 else len(text)
            yield text.rfind(b"\n", 0, at) + 1, past


def needles(signs: Iterable[Sign]) -> Needles:
    """Such that every text of every sign holds at least one of them."""
    chosen: dict[bytes, None] = {}
    for sign in signs:
        for text in (*sign.phrases, *sign.codes):
            chosen[_needle(text)] = None
    return Needles(chosen)


def essential(signs: Iterable[Sign]) -> Needles:
    """The same for EROFS and connections only, translations included."""
    texts = [t for sign in signs if sign.name in {"EROFS", "unreachable"} for t in sign.phrases]
    chosen = [text.encode() for text in ESSENTIAL]
    chosen += [_needle(text) for text in texts if not text.isascii()]
    return Needles(dict.fromkeys(chosen))


def _needle(text: str) -> bytes:
    for part in _SHARED:
        if part in text:
            return part.encode()
    # Case varies at the start of words only: the longest word without its first letter is fixed.
    if text.isascii() and text.isupper():
        return text.encode()
    return max((word[1:] for word in text.split()), key=len).encode()
