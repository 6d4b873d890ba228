"""Recognise requests that look like exfiltration. Applied only to hosts that are not allowed."""

from __future__ import annotations

import re
from urllib.parse import unquote

BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
MAX_TARGET = 96
MIN_TOKEN = 24
_TOKEN = re.compile(rf"[A-Za-z0-9+=_-]{{{MIN_TOKEN},}}")
_HEX = re.compile(rf"[0-9a-fA-F]{{{MIN_TOKEN},}}")


def shape(method: str, target: str) -> str | None:
    """Why the request is suspicious, or None. `target`: path and query."""
    if method in BODY_METHODS:
        return f"{method} carries data out"
    if len(target) > MAX_TARGET:
        return f"path and query have more than {MAX_TARGET} characters"
    for text in {target, unquote(target)}:
        if _HEX.search(text):
            return "a long hexadecimal token is in the path or query"
        if any(_looks_encoded(token) for token in _TOKEN.findall(text)):
            return "a long token that looks like base64 is in the path or query"
    return None


def _looks_encoded(token: str) -> bool:
    """Words joined by dashes are common in paths; base64 mixes cases or digits within a word."""
    if "=" in token or "+" in token:
        return True
    longest = max(re.split(r"[-_]", token), key=len)
    mixed = any(c.isdigit() for c in token) or (token != token.lower() and token != token.upper())
    return len(longest) >= MIN_TOKEN or mixed
