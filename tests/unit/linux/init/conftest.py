"""A real init for each test: with and without a pid namespace, as root and unprivileged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.requirements import require

# With --import-mode=importlib pytest leaves sys.path alone.
sys.path.insert(0, str(Path(__file__).parent))

from init_driver import INIT_FOLDER, Init, Place, name_of, places, ready_init


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    subprocess.run(["make", "-s", "-C", str(INIT_FOLDER)], check=True)


@pytest.fixture(params=places(), ids=name_of)
def place(request: pytest.FixtureRequest) -> Place:
    chosen: Place = request.param
    if chosen.bwrap:
        require("bubblewrap")
    return chosen


@pytest.fixture
def init(place: Place) -> Iterator[Init]:
    """An init that has said READY."""
    with ready_init(place) as ready:
        yield ready


@pytest.fixture
def plain_init() -> Iterator[Init]:
    """Without a pid namespace, as the user of the tests: for what no place changes."""
    with ready_init(Place()) as ready:
        yield ready
