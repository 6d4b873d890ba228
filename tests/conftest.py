"""Fixtures of every test: a daemon, a workspace. `support` holds what they are made of."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

# With --import-mode=importlib pytest leaves sys.path alone, and `support` is not installed.
sys.path.insert(0, str(Path(__file__).parent))

from support.daemon import Daemon, running_daemon
from support.requirements import require

StartDaemon = Callable[..., Daemon]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "requires(*names): what must work here (support.requirements)"
    )
    # A shell without job control starts what runs in the background with SIGINT ignored, and every
    # program of a test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`SANDBOXD_TEST_WITHOUT=docker`: the other pass of scripts/test has the engine's tests."""
    if "docker" not in os.environ.get("SANDBOXD_TEST_WITHOUT", "").split(","):
        return
    folder = Path(__file__).parent / "docker"
    theirs = [item for item in items if item.path.is_relative_to(folder) or _in_a_container(item)]
    config.hook.pytest_deselected(items=theirs)
    items[:] = [item for item in items if item not in set(theirs)]


def _in_a_container(item: pytest.Item) -> bool:
    given = getattr(item, "callspec", None)
    return given is not None and not {"docker", "docker-attach"}.isdisjoint(
        value for value in given.params.values() if isinstance(value, str)
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("requires"):
        for name in marker.args:
            require(name)


@pytest.fixture
def start_daemon() -> Iterator[StartDaemon]:
    """Start a daemon: `start_daemon(config="…", env={…}, args=[…])`. Stopped after the test."""
    with ExitStack() as stack:

        def start(**options: Any) -> Daemon:
            return stack.enter_context(running_daemon(**options))

        yield start


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> Daemon:
    """A daemon with the default config, for this test alone."""
    return start_daemon()


@pytest.fixture(scope="session")
def shared_daemon() -> Iterator[Daemon]:
    """One daemon for many tests, for those that only ask and run; it must outlive them all."""
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty folder to work in, by its canonical name."""
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    return folder
