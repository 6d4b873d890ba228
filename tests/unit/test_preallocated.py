"""What is made ahead is used once each, and missing things are made when they are needed."""

from __future__ import annotations

import itertools

import pytest

from sandboxd import preallocated
from sandboxd.preallocated import COMMANDS, Preallocated


@pytest.fixture(autouse=True)
def no_other_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preallocated, "_kinds", [])


def test_nothing_is_given_twice() -> None:
    numbers = itertools.count()
    made = Preallocated(lambda: next(numbers))
    preallocated.refill_all()
    taken = [made.take() for _ in range(2 * COMMANDS)]
    assert len(set(taken)) == len(taken)


def test_it_is_filled_up_to_what_its_commands_use() -> None:
    numbers = itertools.count()
    made = Preallocated(lambda: next(numbers), per_command=2)
    preallocated.refill_all()
    preallocated.refill_all()
    assert next(numbers) == 2 * COMMANDS
    made.take()
    preallocated.refill_all()
    assert next(numbers) == 2 * COMMANDS + 2


def test_a_refusal_is_for_the_command_that_needs_one() -> None:
    def refuse() -> int:
        raise OSError(24, "too many open files")

    made = Preallocated(refuse)
    preallocated.refill_all()
    with pytest.raises(OSError, match="too many"):
        made.take()
