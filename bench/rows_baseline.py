"""What a sandboxed command is compared with: no sandbox, and bwrap started for each command."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from bench.measure import Row

COMMAND = "/bin/true"


def unsandboxed() -> Row:
    return _spawning("unsandboxed subprocess.run", [COMMAND])


def bare_bwrap(command_line: Sequence[str]) -> Row:
    """`command_line` is what `manifest/check` shows; the command takes the place of the init."""
    end = len(command_line) - command_line[::-1].index("--")
    return _spawning("bare bwrap, same flags", [*command_line[:end], COMMAND])


def _spawning(name: str, command: list[str]) -> Row:
    def once() -> None:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    return Row(name, once, worker=lambda: once)
