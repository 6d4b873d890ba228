"""What is made ahead is used once each, and missing things are made when they are needed."""

from __future__ import annotations

import itertools

import pytest

from sandboxd import stock
from sandboxd.stock import COMMANDS, Stock


@pytest.fixture(autouse=True)
def no_other_stocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock, "_stocks", [])


def test_nothing_is_given_twice() -> None:
    numbers = itertools.count()
    made = Stock(lambda: next(numbers))
    stock.fill_all()
    taken = [made.take() for _ in range(2 * COMMANDS)]
    assert len(set(taken)) == len(taken)


def test_it_is_filled_up_to_what_its_commands_use() -> None:
    numbers = itertools.count()
    made = Stock(lambda: next(numbers), for_each=2)
    stock.fill_all()
    stock.fill_all()
    assert next(numbers) == 2 * COMMANDS
    made.take()
    stock.fill_all()
    assert next(numbers) == 2 * COMMANDS + 2


def test_a_refusal_is_for_the_command_that_needs_one() -> None:
    def refuse() -> int:
        raise OSError(24, "too many open files")

    made = Stock(refuse)
    stock.fill_all()
    with pytest.raises(OSError, match="too many"):
        made.take()
