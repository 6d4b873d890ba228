"""Fixtures: a folder outside every sandbox, and `sandboxctl` with a daemon of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from explain.explaining import Ctl
from support.daemon import Daemon, running_daemon


@pytest.fixture(scope="session")
def explain_daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def place() -> Iterator[Path]:
    """In the user's real home folder: one in /tmp would be the sandbox's own."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    folder = Path(tempfile.mkdtemp(prefix="sandboxd-explain-", dir=home)).resolve()
    for name in ("workspace", "home", "data", "out"):
        (folder / name).mkdir()
    yield folder
    deadline = time.monotonic() + 10
    while folder.exists() and time.monotonic() < deadline:
        # A warm sandbox for the same plan may be in the making, with mount points in here.
        shutil.rmtree(folder, ignore_errors=True)
    assert not folder.exists()


@pytest.fixture
def ctl(explain_daemon: Daemon, place: Path) -> Ctl:
    return Ctl(explain_daemon, place)
