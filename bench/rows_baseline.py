"""What a sandboxed command is compared with: no sandbox, and bwrap started for each command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.measure import Disturbed, Row

COMMAND = "/bin/true"
_ENTRY = "import sys; from sandboxd_client.cli import main; sys.exit(main())"


def unsandboxed(name: str = "unsandboxed subprocess.run") -> Row:
    return _spawning(name, [COMMAND])


def bare_bwrap(command_line: Sequence[str]) -> Row:
    """`command_line` is what `manifest/check` shows; the command takes the place of the init."""
    end = len(command_line) - command_line[::-1].index("--")
    return _spawning("bare bwrap, same flags", [*command_line[:end], COMMAND])


def python_start() -> Row:
    return _spawning("python -c pass", [sys.executable, "-c", "pass"])


def sandboxctl(socket: str, folder: str) -> Row:
    """The whole process. Its stdout is a pipe, as when a program calls it."""
    installed = Path(sys.executable).parent / "sandboxctl"
    program = [str(installed)] if installed.exists() else [sys.executable, "-c", _ENTRY]
    command = [*program, "run", "--no-autostart", "--socket", socket, "--", COMMAND]
    return _spawning("sandboxctl run", command, folder)


def _spawning(name: str, command: list[str], folder: str | None = None) -> Row:
    def once() -> None:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, cwd=folder
        )
        if done.returncode != 0:
            raise Disturbed(f"{name}: {done.stderr.decode(errors='replace').strip()[-300:]}")

    return Row(name, once, worker=lambda: once)
