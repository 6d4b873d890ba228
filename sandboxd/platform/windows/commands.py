"""What a command line can be and which signals a command can get, on Windows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from subprocess import list2cmdline

MAX_UNITS = 32_766  # UTF-16 units of a command line
# Windows has no signals: each of these asks a command to end, and KILL does not ask.
SIGNALS = {"INT": 2, "KILL": 9, "TERM": 15, "BREAK": 21}
SIGNALS_HELP = "Windows knows INT, TERM, BREAK and KILL only"


def signal_number(given: int | str) -> int | None:
    """None: there is no such signal."""
    if isinstance(given, str):
        return SIGNALS.get(given.upper().removeprefix("SIG"))
    return given if given in SIGNALS.values() else None


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def too_long(argv: Sequence[str]) -> tuple[str, str] | None:
    """(field, problem) of arguments that the system does not pass on."""
    needed = units(list2cmdline(argv))
    if needed <= MAX_UNITS:
        return None
    return "argv", f"the command line has {needed} characters, and Windows passes {MAX_UNITS}"
