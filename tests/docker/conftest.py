"""Daemons on a real engine, with our init in the containers and without."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.backends import ATTACHED, running_backend
from support.daemon import Daemon
from support.engine import TestEngine, shared_engine
from support.requirements import is_promised
from support.runs import Runner

PATIENCE_S = 60.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The engine belongs to root: these are no tests of a user's passes."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.isolation)
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def engine() -> TestEngine:
    found = shared_engine()
    if found is None:
        if is_promised("docker"):
            pytest.fail("docker is in SANDBOXD_TEST_REQUIRE and there is no engine", pytrace=False)
        pytest.skip("there is no Docker engine here (dockerd and root, or SANDBOXD_TEST_ENGINE)")
    return found


@pytest.fixture(scope="session")
def with_init(engine: TestEngine) -> Iterator[Daemon]:
    with running_backend("docker") as daemon:
        yield daemon


@pytest.fixture(scope="session")
def attached(engine: TestEngine) -> Iterator[Daemon]:
    with running_backend(ATTACHED) as daemon:
        yield daemon


@pytest.fixture(params=["init", "attach"])
def either(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Commands in containers, in each of the two ways."""
    way = "with_init" if request.param == "init" else "attached"
    runner = Runner(request.getfixturevalue(way))
    yield runner
    runner.close()


@pytest.fixture
def box(with_init: Daemon) -> Iterator[Runner]:
    runner = Runner(with_init)
    yield runner
    runner.close()


@pytest.fixture
def relayed(attached: Daemon) -> Iterator[Runner]:
    runner = Runner(attached)
    yield runner
    runner.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], bool]:
    """Whether something becomes true while one can be expected to wait for it."""

    def wait(condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    return wait


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    assert folder.stat().st_uid == os.geteuid()
    return folder
