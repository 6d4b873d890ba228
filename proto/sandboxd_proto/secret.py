"""A text that must not be shown: tokens and keys.

Clients hold secrets and compare none, so they do not load OpenSSL, which `hashlib` does.
"""

from __future__ import annotations

REDACTED = "<redacted>"


class Secret:
    """`reveal` is the only way to the text; `str`, `repr` and format strings do not show it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def matches(self, other: str | Secret) -> bool:
        """Compares in constant time."""
        import hmac

        text = other.reveal() if isinstance(other, Secret) else other
        return hmac.compare_digest(self._text.encode(), text.encode("utf-8", "surrogatepass"))

    def digest(self) -> str:
        import hashlib

        return hashlib.sha256(self._text.encode("utf-8", "surrogatepass")).hexdigest()

    def __repr__(self) -> str:
        return REDACTED

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.matches(other)

    def __hash__(self) -> int:
        return hash(self._text)
