"""The cheap look at a block of output: which lines are worth reading at all.

A fixed byte string is searched at one to three gigabytes a second, a regular expression with as
many branches at fifty megabytes: so needles are fixed strings, and few. Each sign is covered by
needles that occur in all of its texts; the first letter is left out where programs vary its case.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandboxd.denials.phrases import Sign

# Short common parts stand for many phrases at once.
_SHARED = (
    "enied", "ermitted", "ead-only", "eadonly", "o such ", "not found", "nonexistent",
    "find module", "open file", "annot ", "an't ", "ould not ", "ouldn't ", "ailed to ",
    "nable to ", "esol", "nreachable", "onnect", "emory", "llocat", "rivileges", "xceeded",
)  # fmt: skip
# Past the first megabytes only what the kernel says about files and connections is looked for.
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
