"""Single keys of a console of Windows, in the place of `raw_mode`.

A console and a named pipe cannot be waited for together without a thread: the keyboard is asked
between short waits for the daemon.
"""

from __future__ import annotations

import sys
import time

from sandboxd_client.cli.parse import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Protocol

    class Keyboard(Protocol):
        """The part of msvcrt that is used."""

        def kbhit(self) -> bool: ...
        def getwch(self) -> str: ...

    class PolledLink(Protocol):
        def is_readable(self, timeout_s: float) -> bool: ...


_LOOK_S = 0.05
_SPECIAL = ("\x00", "\xe0")  # an arrow or function key: a second character follows
_ENDS = {"\x1a": "\x04"}  # Ctrl-Z ends the input here


class SingleKeys:
    """`with SingleKeys() as keys:` keys are read one by one, without echo."""

    wake: int | None = None  # of use on POSIX only

    def __init__(self, keyboard: Keyboard | None = None) -> None:
        self._keyboard = keyboard

    def __enter__(self) -> SingleKeys:
        """UsageError where stdin is no console. NUL is none, although isatty says so."""
        if self._keyboard is None:
            self._keyboard = _console()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        """A console of Windows keeps no mode for it."""

    def wait(self, link: PolledLink, timeout_s: float | None) -> tuple[bool, bool]:
        """Whether a key was pressed, and whether something came from the daemon."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = _LOOK_S if end is None else min(_LOOK_S, end - time.monotonic())
            is_told = link.is_readable(max(left, 0.0))
            is_typed = self._keys.kbhit()
            if is_typed or is_told or (end is not None and time.monotonic() >= end):
                return is_typed, is_told

    def read(self, most: int = 1) -> str:
        """What was typed. A key without a character reads as one that means nothing."""
        typed = ""
        while len(typed) < most and (not typed or self._keys.kbhit()):
            key = self._keys.getwch()
            if key in _SPECIAL:
                self._keys.getwch()
                key = "\x1b"
            typed += _ENDS.get(key, key)
        return typed

    def drop(self) -> None:
        while self._keys.kbhit():
            self._keys.getwch()

    @property
    def _keys(self) -> Keyboard:
        assert self._keyboard is not None, "entered first"
        return self._keyboard


def drop_typed(keyboard: Keyboard | None = None) -> None:
    """Forget the keys that were not read yet."""
    SingleKeys(keyboard or _console()).drop()


if sys.platform == "win32":
    import ctypes
    import msvcrt

    def _console() -> Keyboard:
        handle = ctypes.c_void_p(msvcrt.get_osfhandle(0))
        if not ctypes.windll.kernel32.GetConsoleMode(handle, ctypes.byref(ctypes.c_uint32())):
            raise _no_console()
        _show_escapes()
        return msvcrt

    def _show_escapes() -> None:
        """Windows 10 interprets escape sequences for those who ask."""
        kernel32 = ctypes.WinDLL("kernel32")
        kernel32.GetStdHandle.restype = ctypes.c_void_p
        output, mode = ctypes.c_void_p(kernel32.GetStdHandle(-11)), ctypes.c_uint32()
        if kernel32.GetConsoleMode(output, ctypes.byref(mode)):
            kernel32.SetConsoleMode(output, mode.value | 0x4)

else:

    def _console() -> Keyboard:
        raise _no_console()


def _no_console() -> UsageError:
    return UsageError(
        "it reads single keys of a console, and stdin is none",
        "write sandboxctl approve ID --once, or --list; sandboxctl top --once",
    )
