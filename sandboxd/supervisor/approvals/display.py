"""A command as an approver sees it: never shortened, hidden characters escaped."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

MOST_BYTES = 64 * 1024
# Characters that have a place of their own in Unicode and show nothing: fillers, joiners of marks,
# variation selectors, the empty Braille pattern.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
                    "\U000e0100-\U000e01ef]")  # fmt: skip


def has_hidden(text: str) -> bool:
    """Control, format (bidirectional too), surrogate, private and unassigned characters, spaces
    other than U+0020, and those that show nothing."""
    return not text.isprintable() or _BLANK.search(text) is not None


def escape_hidden(text: str) -> str:
    return "".join(_escaped(c) if has_hidden(c) else c for c in text) if has_hidden(text) else text


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def display(argv: Sequence[str]) -> tuple[str, bool]:
    """The command line, and whether it is too long to be shown whole."""
    shown: list[str] = []
    left = MOST_BYTES
    for word in argv:
        # Nothing beyond the limit is examined: a request may have megabytes.
        text = escape_hidden(shlex.quote(word[: left + 1]))
        shown.append(text)
        left -= len(text.encode()) + 1
        if left < -1:
            whole = " ".join(shown).encode()
            return whole[:MOST_BYTES].decode("utf-8", "ignore"), True
    return " ".join(shown), False
