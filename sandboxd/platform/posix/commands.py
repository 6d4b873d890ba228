"""What a command line can be and which signals a command can get, on Linux and macOS."""

from __future__ import annotations

import signal
from collections.abc import Sequence

MAX_ARGUMENT = 128 * 1024 - 1  # the kernel's MAX_ARG_STRLEN
SIGNALS_HELP = 'a signal is a number from 1 to 64, or a name: for example "SIGINT" or 2'
_BY_NAME = {s.name: s.value for s in signal.Signals}


def signal_number(given: int | str) -> int | None:
    """None: there is no such signal."""
    if isinstance(given, str):
        name = given.upper()
        return _BY_NAME.get(name) or _BY_NAME.get(f"SIG{name}")
    return given if 0 < given <= 64 else None


def too_long(argv: Sequence[str]) -> tuple[str, str] | None:
    """(field, problem) of arguments that the system does not pass on."""
    for index, argument in enumerate(argv):
        if len(argument.encode()) > MAX_ARGUMENT:
            limit = f"an argument is longer than {MAX_ARGUMENT} bytes, the kernel's limit"
            return f"argv[{index}]", limit
    return None
