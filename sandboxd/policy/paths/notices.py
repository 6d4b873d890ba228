"""What a system can tell about folders: which of them must be looked at again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class FolderWatch(Protocol):
    """The folders of one kept plan. For the event loop's thread."""

    def changes(self) -> set[str] | None:
        """The folders to look at now: those that may have changed since the last call, and those
        that cannot be watched. None: all of them, and another watch is to be made first."""

    def close(self) -> None: ...


class FolderNotices(Protocol):
    def watch(self, folders: Mapping[str, tuple[int, bool]]) -> FolderWatch | None:
        """By path: the device that it lies on, and whether its entries count besides its identity.
        Look at all of them afterwards: what changes from here on is told."""
