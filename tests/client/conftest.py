"""Fixtures: a fake daemon, `sandboxctl` as a user starts it, and a terminal to start it in."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# The suite's import mode puts no test folder on sys.path; these modules are not tests.
sys.path.insert(0, str(Path(__file__).parent))

from ctl import Ctl, environment
from fake_daemon import Answer, FakeDaemon
from support.daemon import Daemon
from terminal_screen import Screen


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


@pytest.fixture
def workspace(folder: Path) -> Path:
    path = folder / "project"
    for name in ("objects", "refs"):
        (path / ".git" / name).mkdir(parents=True)
    (path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
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
