"""When Ctrl-C means "kill it": the second one, unless the program is one that uses the key.

With pipes a Ctrl-C is a SIGINT to us, and the second one kills. In a terminal of its own the
program gets the key itself, and many take it without ending: editors, shells, prompts. There
the second Ctrl-C in a row kills only if the first had no effect but the terminal's own echo of it.
"""

from __future__ import annotations

_CTRL_C = b"\x03"
_ECHO = b"^C"
_CTRL_Z = b"\x1a"
_STOP_ECHO = b"^Z"


class Interrupts:
    def __init__(self) -> None:
        self._signalled = False
        self._stop_asked = False
        self._since: bytes | None = None  # what was printed since Ctrl-C was the last key

    def first(self) -> bool:
        """A SIGINT arrived; whether it is the first."""
        if self._signalled:
            return False
        self._signalled = True
        return True

    def typed(self, keys: bytes) -> bool:
        """Keys for the program's terminal; whether they mean that it should be killed instead."""
        self._stop_asked = keys == _CTRL_Z
        if keys != _CTRL_C:
            self._since = None
            return False
        ignored = self._since == _ECHO
        self._since = b""
        return ignored

    def stopped(self, data: bytes) -> bool:
        """Whether output after Ctrl-Z is the terminal's echo of it: it stopped the program, and
        nothing inside would continue it."""
        asked, self._stop_asked = self._stop_asked, False
        return asked and data.startswith(_STOP_ECHO)

    def printed(self, data: bytes) -> None:
        if self._since is not None and len(self._since) <= len(_ECHO):
            self._since += data[: len(_ECHO) + 1]
