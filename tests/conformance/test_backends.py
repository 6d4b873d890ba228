"""Every backend of the product's own list keeps every claim, or says that it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.claims import CLAIMS
from support.backends import ALL, product_name, running_backend
from support.runs import Runner

pytestmark = pytest.mark.isolation


@pytest.fixture(scope="module", params=ALL)
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    with running_backend(request.param) as daemon:
        runner = Runner(daemon)
        assert runner.shell("true").raw["backend"] == product_name(request.param)
        yield runner
        runner.close()


@pytest.mark.parametrize("name", CLAIMS)
def test_claim(runner: Runner, name: str, workspace: Path) -> None:
    CLAIMS[name](runner, workspace)
