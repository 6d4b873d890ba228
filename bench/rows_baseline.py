"""What a sandboxed command is compared with: no sandbox, and bwrap started for each command."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from bench.measure import Row

COMMAND = "/bin/true"


def unsandboxed() -> Row:
    return _spawning("unsandboxed subprocess.run", [COMMAND])


def bare_bwrap(flags: Sequence[str]) -> Row:
    """`flags` are bwrap's own, without the command."""
    return _spawning("bare bwrap, same flags", [shutil.which("bwrap") or "bwrap", *flags, COMMAND])


def _spawning(name: str, command: list[str]) -> Row:
    def once() -> None:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    return Row(name, once, worker=lambda: once)
