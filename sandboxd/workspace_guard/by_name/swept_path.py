"""The result of a sweep by names for one path."""

from __future__ import annotations

import msgspec


class SweptPath(msgspec.Struct, frozen=True):
    """`moved_to`: where it is now; None if it is gone, or still there, and `error` says why."""

    path: str
    moved_to: str | None
    error: str = ""
