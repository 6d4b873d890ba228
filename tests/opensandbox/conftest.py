"""Daemons that use a fake lifecycle server, and runs on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from support.daemon import Daemon, running_daemon
from support.fake_opensandbox import KEY, FakeServer, running_fake
from support.runs import Runner

RunningOn = Callable[..., AbstractContextManager[Daemon]]


def write_key(folder: Path) -> Path:
    path = folder / "key"
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    return path


@contextmanager
def daemon_using(
    url: str, key_file: Path, *, warm: str = "false", **config: str
) -> Iterator[Daemon]:
    """With execd's own commands unless `way` is another."""
    named = {"image": "image:of-tests", "way": "execd", **config}
    keys = {"url": url, "api_key_file": str(key_file), **named}
    env = {f"SANDBOXD_OPENSANDBOX_{name.upper()}": value for name, value in keys.items()}
    fixed = {"SANDBOXD_BACKEND": "opensandbox", "SANDBOXD_POOL_ENABLED": warm}
    with running_daemon(env={**fixed, **env}) as daemon:
        yield daemon


# one daemon and one server for the tests of a file


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeServer, Daemon]]:
    key_file = write_key(tmp_path_factory.mktemp("key"))
    with running_fake() as server, daemon_using(server.url, key_file) as running:
        yield server, running


@pytest.fixture
def fake(shared: tuple[FakeServer, Daemon]) -> Iterator[FakeServer]:
    server = shared[0]
    server.reset()
    yield server
    server.reset()


@pytest.fixture
def daemon(shared: tuple[FakeServer, Daemon]) -> Daemon:
    return shared[1]


@pytest.fixture
def runner(daemon: Daemon) -> Iterator[Runner]:
    runner = Runner(daemon)
    yield runner
    runner.close()


# those of one test


@pytest.fixture
def own_fake() -> Iterator[FakeServer]:
    with running_fake() as server:
        yield server


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write_key(tmp_path)


@pytest.fixture
def daemon_on(key_file: Path) -> RunningOn:
    """daemon_on(url, **config): a daemon that uses the server at `url`."""

    def running(url: str, **config: str) -> AbstractContextManager[Daemon]:
        return daemon_using(url, key_file, **config)

    return running
