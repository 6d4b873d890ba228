"""What a sweep by names has done with one path."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Swept:
    """`moved_to`: where it is now; None if it is gone, or still there, and `error` says why."""

    path: str
    moved_to: str | None
    error: str = ""
