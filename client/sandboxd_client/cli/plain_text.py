"""Text that a command chose, for a terminal and for pasting into a shell."""

from __future__ import annotations

_PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-:@%+="


def quote(word: str) -> str:
    """For pasting into a shell. What the command chose cannot end the quotes or move the cursor."""
    if word and not word.strip(_PLAIN):
        return word
    return "'" + one_line(word).replace("'", "'\\''") + "'"


def one_line(text: str) -> str:
    """Control characters shown, not sent: a denied path may hold an escape sequence."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
