"""What a peer is to the bench: a way to install it, and a way to run one command after another.

Each is measured in its own best form: a library is kept warm in a process of its own, a server is
started once. Such a process reads one JSON array (argv) a line and answers with the exit code.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

INSTALL_S = 600
Run = Callable[[Sequence[str]], int]


class Unusable(Exception):
    """It cannot be measured here; the text says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """`opened(folder, workspace)`: `folder` is where `install` put it."""

    name: str
    install: Callable[[Path], None]
    opened: Callable[[Path, Path], AbstractContextManager[Run]]


def quietly(*command: str | Path) -> None:
    """Run an installer; Unusable with its last output if it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_S,
            check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unusable(f"{words[0]}: {error}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no word"]
        raise Unusable(f"{' '.join(words[:3])} failed: {said[-1]}")


def npm(folder: Path, package: str) -> None:
    quietly("npm", "install", "--no-audit", "--no-fund", "--prefix", folder, package)


def pip(folder: Path, package: str) -> None:
    """A virtual environment of its own: what a peer depends on is not ours."""
    if not (folder / "bin" / "python").exists():
        quietly("python3", "-m", "venv", folder)
    quietly(folder / "bin" / "python", "-m", "pip", "install", "-qq", package)


@contextmanager
def driver(command: Sequence[str | Path], workspace: Path) -> Iterator[Run]:
    """A process that keeps a library warm. What it says on stderr is shown when it ends."""
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=said, cwd=workspace,
        ) as process,
    ):  # fmt: skip
        try:
            yield lambda argv: _ask(process, argv, said)
        finally:
            process.kill()


def _ask(process: subprocess.Popen[bytes], argv: Sequence[str], said: IO[bytes]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(list(argv)).encode() + b"\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        said.seek(0)
        words = said.read().decode(errors="replace").strip().splitlines()
        raise Unusable(words[-1] if words else "its process ended without output")
    return int(line)


@contextmanager
def spawning(prefix: Sequence[str | Path], workspace: Path) -> Iterator[Run]:
    """A command line for each command."""
    words = [str(word) for word in prefix]

    def run(argv: Sequence[str]) -> int:
        return subprocess.run(
            [*words, *argv], stdin=subprocess.DEVNULL, capture_output=True, cwd=workspace,
            check=False,
        ).returncode  # fmt: skip

    yield run
