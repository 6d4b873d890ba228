"""Exit codes and messages of a job to what the result says."""

from __future__ import annotations

import pytest

from sandboxd.windows.processes import exits


@pytest.mark.parametrize("code", [0xC0000022, 0xC0000135, 0xC0000142])
def test_a_program_that_never_started_was_denied_its_start(code: int) -> None:
    assert exits.start_denial(code)
    assert exits.start_denial(code - (1 << 32)) == exits.start_denial(code)


@pytest.mark.parametrize("code", [0, 1, 5, 0xC0000005, 0xC000013A, None])
def test_other_codes_are_the_programs_own(code: int | None) -> None:
    assert exits.start_denial(code) is None


@pytest.mark.parametrize(
    ("messages", "code", "limit"),
    [
        ({4}, 1, None),
        ({1, 4}, exits.JOB_TIME_LIMIT, "cpu"),
        (set(), exits.JOB_TIME_LIMIT, "cpu"),
        ({10}, 1, "memory"),
        ({9}, 0xC0000017, "memory"),
        ({3}, 1, "processes"),
        ({3}, 0, None),
        ({10}, 0, None),
    ],
)
def test_limits(messages: set[int], code: int, limit: str | None) -> None:
    assert exits.limit_of(frozenset(messages), code) == limit


def test_codes_of_the_table_are_unsigned() -> None:
    assert all(code == exits.unsigned(code) for code in exits.DENIED_AT_START)
