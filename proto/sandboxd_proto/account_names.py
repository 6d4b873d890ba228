"""Names of accounts in sentences."""

from __future__ import annotations


def in_sentence(name: str) -> str:
    """`nobody` reads as the pronoun: in "a place that nobody can reach" as the opposite."""
    return f"the user {name}" if name == "nobody" else name
