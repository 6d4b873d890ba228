"""Find the lines of a block of output that the classifier has to read, cheaply.

A search for a fixed byte string handles one to three gigabytes a second, a regular expression with
as many branches fifty megabytes. So the needles are few fixed strings. Every text of a sign holds
one of its needles; the first letter is left out where programs vary its case.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandboxd.denials.text.phrases import Sign

# Short common parts stand for many phrases at once.
_SHARED = (
    "enied", "ermitted", "ead-only", "eadonly", "o such ", "not found", "nonexistent",
    "find module", "open file", "annot ", "an't ", "ould not ", "ouldn't ", "ailed to ",
    "nable to ", "esol", "nreachable", "onnect", "emory", "llocat", "rivileges", "xceeded",
)  # fmt: skip
# After the first megabytes only errors about files and connections are searched.
ESSENTIAL = ("ead-only file system", "ermission denied", "nreachable", "o such file or directory")


def needles(signs: Iterable[Sign]) -> tuple[bytes, ...]:
    """Byte strings such that every text of every sign holds at least one of them."""
    chosen: dict[bytes, None] = {}
    for sign in signs:
        for text in (*sign.phrases, *sign.codes):
            chosen[_needle(text)] = None
    return tuple(chosen)


def essential(signs: Iterable[Sign]) -> tuple[bytes, ...]:
    """The same for EROFS and connections only, translations included."""
    texts = [t for sign in signs if sign.name in {"EROFS", "unreachable"} for t in sign.phrases]
    chosen = [text.encode() for text in ESSENTIAL]
    chosen += [_needle(text) for text in texts if not text.isascii()]
    return tuple(dict.fromkeys(chosen))


def _needle(text: str) -> bytes:
    for part in _SHARED:
        if part in text:
            return part.encode()
    # Case varies at the start of words only: the longest word without its first letter is fixed.
    if text.isascii() and text.isupper():
        return text.encode()
    return max((word[1:] for word in text.split()), key=len).encode()
