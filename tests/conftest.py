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
from hypothesis import HealthCheck, settings

# With --import-mode=importlib pytest leaves sys.path alone, and `support` is not installed.
sys.path.insert(0, str(Path(__file__).parent))

from support.daemon import Daemon, running_daemon
from support.requirements import require

StartDaemon = Callable[..., Daemon]
# How long an example takes says something about the machine, which may be busy.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "requires(*names): what must work here (support.requirements)"
    )
    # A shell without job control starts what runs in the background with SIGINT and SIGQUIT
    # ignored, nohup with SIGHUP, and every program of a test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform != "win32":
        for number in (signal.SIGQUIT, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put every test into a pass of scripts/test that can run it.

    Root's passes run what is marked `isolation`, and so every test that requires root; what needs
    the Docker engine has a pass of its own among them.
    `SANDBOXD_TEST_WITHOUT=docker,root`: the other pass has the tests that require these.
    """
    without = set(os.environ.get("SANDBOXD_TEST_WITHOUT", "").split(","))
    theirs = set()
    for item in items:
        needs = _needs(item)
        if "root" in needs:
            item.add_marker(pytest.mark.isolation)
        if "docker" in needs and item.get_closest_marker("isolation") is not None:
            item.add_marker(pytest.mark.engine)
        if needs & without:
            theirs.add(item)
    config.hook.pytest_deselected(items=list(theirs))
    items[:] = [item for item in items if item not in theirs]


def _needs(item: pytest.Item) -> set[str]:
    needs = {name for marker in item.iter_markers("requires") for name in marker.args}
    given = getattr(item, "callspec", None)
    values = given.params.values() if given is not None else ()
    in_container = not {"docker", "docker-attach"}.isdisjoint(v for v in values if type(v) is str)
    if in_container or item.path.is_relative_to(Path(__file__).parent / "docker"):
        needs.add("docker")
    return needs


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
