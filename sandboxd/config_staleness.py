"""Whether the config file is still the one that the daemon read when it started."""

from __future__ import annotations

import os


class ConfigFile:
    """Made before the file is read: a change while it is read counts as one after it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._read = _signature(path)

    def warnings(self) -> list[str]:
        """For `initialize` and `status`."""
        if _signature(self.path) == self._read:
            return []
        return [
            f"{self.path} changed after the daemon had read it; "
            "`sandboxctl restart` makes it take effect"
        ]


def _signature(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
