"""Progress of an image's download, summed over its layers as the engine reports them."""

from __future__ import annotations

import time
from typing import Any

from sandboxd import progress

PHASE = "image"
EVERY_S = 0.2


class PullProgress:
    """`add` takes each line of the engine's answer; a report goes out a few times a second."""

    def __init__(self) -> None:
        self._layers: dict[str, tuple[int, int]] = {}
        self._reported_at = time.monotonic()
        progress.report(PHASE, 0, None)

    def add(self, line: dict[str, Any]) -> None:
        detail = line.get("progressDetail")
        if line.get("status") != "Downloading" or not isinstance(detail, dict):
            return
        current, total = detail.get("current"), detail.get("total")
        if isinstance(current, int) and isinstance(total, int):
            self._layers[str(line.get("id"))] = (current, total)
            if time.monotonic() - self._reported_at >= EVERY_S:
                self._report()

    def _report(self) -> None:
        self._reported_at = time.monotonic()
        done = sum(current for current, _ in self._layers.values())
        progress.report(PHASE, done, sum(total for _, total in self._layers.values()))

    def finish(self) -> None:
        total = sum(size for _, size in self._layers.values())
        progress.report(PHASE, total, total)
