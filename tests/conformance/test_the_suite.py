"""The suite is tested too: a backend that lies about what it enforces is caught by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.claims import CLAIMS
from support.backends import running_backend
from support.runs import Ran, Runner

# What only a real sandbox does: the claims that must fail on a liar.
WALLS = (
    "what_is_only_readable_is_not_written",
    "what_is_not_allowed_is_not_read",
    "a_denied_path_inside_an_allowed_one_is_not_read",
    "the_deeper_of_two_paths_rules",
    "tmp_is_private",
    "a_denied_network_reaches_nobody",
)


class Liar(Runner):
    """Runs without any sandbox and says that everything was enforced."""

    def run(self, *argv: str, **params: Any) -> Ran:
        raw = super().run(*argv, **params).raw
        return Ran({**raw, "enforcement": dict.fromkeys(raw["enforcement"], "enforced")})


@pytest.fixture(scope="module")
def liar() -> Iterator[Runner]:
    with running_backend("none") as daemon:
        runner = Liar(daemon)
        yield runner
        runner.close()


@pytest.mark.parametrize("name", WALLS)
def test_a_backend_that_lies_is_caught(liar: Runner, name: str, workspace: Path) -> None:
    with pytest.raises(AssertionError):
        CLAIMS[name](liar, workspace)


def test_the_claims_that_need_no_wall_hold_without_one(liar: Runner, workspace: Path) -> None:
    CLAIMS["exit_codes_are_exact"](liar, workspace)
    CLAIMS["allowed_files_are_read_and_written"](liar, workspace)
