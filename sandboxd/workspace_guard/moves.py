"""Where folders went that were moved while commands could write them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sandboxd.policy.paths.within import within


class Moves(msgspec.Struct, frozen=True):
    """Where folders have gone, by the path that they had; None: it cannot be told or reached."""

    to: dict[str, str | None] = {}

    def path(self, path: str) -> str | None:
        """Where this is now. None if that is not known."""
        above = [one for one in self.to if within(path, one)]
        if not above:
            return path
        old = max(above, key=len)
        new = self.to[old]
        return None if new is None else (new.rstrip("/") + path[len(old.rstrip("/")) :]) or "/"

    def paths(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Those whose place is known."""
        return tuple(one for one in map(self.path, paths) if one is not None)

    def told(self, path: str) -> str:
        """For messages."""
        return self.path(path) or path
