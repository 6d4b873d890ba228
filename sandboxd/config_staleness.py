"""Whether the config file is still the one that the daemon read when it started."""

from __future__ import annotations

import os
import time

LOOK_AGAIN_S = 1.0


class ConfigFile:
    def __init__(self, path: str) -> None:
        self.path = path
        self._read = _signature(path)
        self._looked = 0.0
        self._changed = False

    def warnings(self) -> list[str]:
        """For `initialize` and `status`. The file is looked at once a second at most."""
        now = time.monotonic()
        if now - self._looked >= LOOK_AGAIN_S:
            self._looked = now
            self._changed = _signature(self.path) != self._read
        if not self._changed:
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
