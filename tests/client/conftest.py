"""Fixtures: a fake daemon, `sandboxctl` as a user starts it, and a terminal to start it in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# The suite's import mode puts no test folder on sys.path; these modules are not tests.
sys.path.insert(0, str(Path(__file__).parent))

from fake_daemon import Answer, FakeDaemon
from support.daemon import Daemon
from terminal_screen import Screen

from sandboxd_client.cli.table import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short (a socket's path has 107 bytes) and ours alone."""
    path = Path(tempfile.mkdtemp(prefix="sbxc-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def fake(folder: Path) -> Iterator[FakeDaemon]:
    daemon = FakeDaemon(str(folder / "d.sock"))
    yield daemon
    daemon.close()


@pytest.fixture
def refuse() -> type[Answer]:
    return Answer


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    kept["PATH"] = "/usr/local/bin:/usr/bin:/bin"  # one that every user can search
    paths = os.pathsep.join(str(ROOT / part) for part in ("", "client", "proto"))
    return {**kept, "PYTHONPATH": paths, "TERM": "xterm", **more}


class Ctl:
    """Starts `sandboxctl` as a user would."""

    def __init__(self, socket_path: str, workspace: Path) -> None:
        self.socket_path, self.workspace = socket_path, workspace
        self.extra: list[str] = ["--no-autostart"]

    def env(self, **more: str) -> dict[str, str]:
        return environment(**more)

    def argv(self, command: str, *arguments: str) -> list[str]:
        options = ["--socket", self.socket_path] if command != "completion" else []
        if "--no-autostart" in [flag.name for flag in COMMANDS[command].flags]:
            options += self.extra
        words = command.split()
        return [sys.executable, "-m", "sandboxd_client.cli", *words, *options, *arguments]

    def __call__(
        self, command: str, *arguments: str, input: bytes | None = b"", **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.argv(command, *arguments), input=input, capture_output=True, timeout=60,
            cwd=self.workspace, env=environment(**env),
        )  # fmt: skip

    def start(self, command: str, *arguments: str, **popen: Any) -> subprocess.Popen[bytes]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE}  # fmt: skip
        return subprocess.Popen(
            self.argv(command, *arguments), cwd=self.workspace, env=environment(),
            bufsize=0, **{**streams, **popen},
        )  # fmt: skip


@pytest.fixture
def workspace(folder: Path) -> Path:
    path = folder / "project"
    (path / ".git").mkdir(parents=True)
    return path


@pytest.fixture
def ctl(fake: FakeDaemon, workspace: Path) -> Ctl:
    return Ctl(fake.path, workspace)


@pytest.fixture
def inside(ctl: Ctl, shared_daemon: Daemon) -> Ctl:
    """sandboxctl with a real daemon that many tests share."""
    ctl.socket_path = shared_daemon.socket
    return ctl


@pytest.fixture
def screen(workspace: Path) -> Iterator[Callable[[list[str]], Screen]]:
    made: list[Screen] = []

    def make(argv: list[str]) -> Screen:
        made.append(Screen(argv, workspace, environment()))
        return made[-1]

    yield make
    for item in made:
        item.close()
