"""Whether Ctrl-Z was to stop the program: then `run` stops, as nothing inside would continue it.

A program that reads lines leaves the key to its terminal, which echoes it and stops the program.
One that has the screen (vim, less, all of ncurses) gives the terminal back and stops itself. The
kernel ignores that, since no process of its session is above it, so it takes the terminal again at
once; or, after a SIGSTOP, it is silent. A shell in the sandbox says what it stopped: that is not
for us.
"""

from __future__ import annotations

import re
import time

_ECHO = b"^Z"
# The other screen and the keypad's mode, which such programs switch.
_GIVES = re.compile(rb"\x1b\[\?(?:1049|1047|47|1)l|\x1b>")
_TAKES = re.compile(rb"\x1b\[\?(?:1049|1047|47|1)h|\x1b=")
_UNSEEN = re.compile(
    rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]?|\x1b[ -/]*.?|[\x00-\x20\x7f]"
)
_SILENT_S = 0.3
_MOST_BYTES = 1 << 16


def sets_up(data: bytes) -> bool:
    """Whether it switches the terminal to another screen or keypad mode."""
    return _TAKES.search(data) is not None


class Suspension:
    """From the key on, `shown` has what the program prints. `wanted`: `run` is to stop now, and to
    print the rest when it goes on. `over`: it does not stop because of this key."""

    def __init__(self, *, burst: bool = False) -> None:
        """`burst`: other keys came with it, whose echo may come first."""
        self._burst = burst
        self.wanted = False
        self.over = False
        self._seen = b""
        self._gave: int | None = None  # where it has given the terminal back
        self._due: float | None = None

    def shown(self, data: bytes) -> tuple[bytes, bytes]:
        """What is to be printed now, and the rest."""
        start = len(self._seen)
        self._seen += data
        if self._seen.startswith(_ECHO) or (self._burst and _ECHO in self._seen):
            self.wanted = True
            return data, b""
        if self._gave is None and (gives := _GIVES.search(self._seen)):
            self._gave = gives.end()
            self._due = time.monotonic() + _SILENT_S
        if self._gave is None:
            self.over = len(self._seen) > _MOST_BYTES
            return data, b""
        takes = _TAKES.search(self._seen, self._gave)
        between = self._seen[self._gave : takes.start() if takes else None]
        if _UNSEEN.sub(b"", between):
            self.over = True
        elif takes:
            self.wanted = True
            cut = max(start, takes.start())
            return self._seen[start:cut], self._seen[cut:]
        return data, b""

    @property
    def left_s(self) -> float | None:
        """How long it is waited for."""
        return None if self._due is None else max(0.0, self._due - time.monotonic())

    def look(self) -> None:
        """Without output for a while: it has stopped."""
        self.wanted = self.wanted or self.left_s == 0.0
