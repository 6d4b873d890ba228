"""Names of files and hosts in the sentences of denials and warnings. Pure.

A command chooses names. One with blanks could be a sentence of its own, such as the proposal of a
remedy: it is put in quotes, so that it ends where it ends.
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9/._~:@%+=,#\\\[\]-]+\Z")
_LONGEST, _END = 200, 40


def escape_controls(text: str) -> str:
    """Without control and bidi characters: a path may hold a terminal escape sequence."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def named(name: str) -> str:
    """The name as a sentence shows it."""
    if _PLAIN.match(name):
        return name
    name = escape_controls(name)
    if len(name) > _LONGEST:
        name = f"{name[: _LONGEST - _END]}…{name[-_END:]}"
    return '"' + name.replace('"', '\\"') + '"'
