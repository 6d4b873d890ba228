"""The system's pseudo consoles, and which terminals are open: pumps know them by their output."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from ctypes import c_int32, c_uint32, c_void_p
from typing import Any

from sandboxd.windows import api, ends
from sandboxd.windows.structures import COORD

assert sys.platform == "win32"

_SAME_ACCESS = 0x2  # DUPLICATE_SAME_ACCESS


class SystemConsoles:
    """OSError where this Windows has no pseudo consoles (they came with 10.0.17763)."""

    def input_pipe(self) -> tuple[int, int]:
        return ends.input_pipe()

    def output_pipe(self) -> tuple[int, int]:
        return ends.output_pipe()

    def create(self, rows: int, cols: int, source: int, target: int) -> int:
        made = c_void_p()
        create = _function("CreatePseudoConsole", c_int32, COORD, c_void_p, c_void_p, c_uint32,
                           c_void_p)  # fmt: skip
        _check(create(COORD(cols, rows), source, target, 0, ctypes.byref(made)), create.__name__)
        return int(made.value or 0)

    def resize(self, console: int, rows: int, cols: int) -> None:
        resize = _function("ResizePseudoConsole", c_int32, c_void_p, COORD)
        _check(resize(console, COORD(cols, rows)), resize.__name__)

    def close_console(self, console: int) -> None:
        _function("ClosePseudoConsole", None, c_void_p)(console)

    def close(self, handle: int) -> None:
        ends.close(handle)

    def duplicate(self, handle: int) -> int:
        made = c_void_p()
        own = api.GetCurrentProcess()
        api.check(
            api.DuplicateHandle(own, handle, own, ctypes.byref(made), 0, 0, _SAME_ACCESS),
            "DuplicateHandle",
        )
        return int(made.value or 0)

    def in_thread(self, work: Callable[[], None]) -> None:
        """A thread of its own: closing a console may take as long as its output is read."""
        threading.Thread(target=work, name="console", daemon=True).start()


def _function(name: str, result: Any, *arguments: Any) -> Any:
    found = getattr(ctypes.WinDLL("kernel32"), name, None)
    if found is None:
        raise OSError(f"this Windows has no pseudo consoles ({name} is missing)")
    found.restype, found.argtypes = result, arguments
    return found


def _check(result: int, what: str) -> None:
    if result < 0:
        raise OSError(f"{what} failed with {result & 0xFFFFFFFF:#010x}")
