"""The small Internet, a daemon that lives in it, and commands run with allow_hosts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.backends import running_backend
from support.daemon import Daemon, running_daemon

# With --import-mode=importlib pytest leaves sys.path alone.
sys.path.insert(0, str(Path(__file__).parent))

from runner import Runner
from small_internet import CONFIG, Net, small_internet


@pytest.fixture(scope="session")
def net() -> Iterator[Net]:
    with small_internet() as net:
        yield net


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "docker_too: what the gate does is tried in containers, too")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The engine belongs to root: what is tried in containers is in the pass of root."""
    for item in items:
        if item.get_closest_marker("docker_too"):
            item.add_marker(pytest.mark.isolation)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The gate is one and the same everywhere; how a sandbox is led to it is each backend's own."""
    if "gate_daemon" in metafunc.fixturenames:
        too = metafunc.definition.get_closest_marker("docker_too")
        backends = ["bubblewrap", "docker"] if too else ["bubblewrap"]
        metafunc.parametrize("gate_daemon", backends, indirect=True, scope="session")


@pytest.fixture(scope="session")
def gate_daemon(net: Net, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    config = CONFIG if request.param == "bubblewrap" else f"{CONFIG}[pool]\nenabled = false\n"
    with running_backend(request.param, config=config, prefix=net.enter) as daemon:
        yield daemon


@pytest.fixture
def start_in_net(net: Net) -> Iterator[Callable[..., Daemon]]:
    """A daemon in the small Internet with further config below [egress]."""
    with ExitStack() as stack:

        def start(egress: str = "", more: str = "", args: tuple[str, ...] = ()) -> Daemon:
            config = f"{CONFIG}{egress}\n{more}"
            return stack.enter_context(running_daemon(config=config, prefix=net.enter, args=args))

        yield start


@pytest.fixture
def run(gate_daemon: Daemon, net: Net) -> Iterator[Runner]:
    with gate_daemon.connect(timeout_s=90) as connection:
        yield Runner(connection, net)
