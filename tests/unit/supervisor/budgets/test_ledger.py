"""Budgets: nothing changes when a charge is refused, and sums are exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.config.config import SessionCapConfig
from sandboxd.supervisor.budgets import ledger
from sandboxd.supervisor.budgets.amounts import Amounts, charge_of, to_micros
from sandboxd.supervisor.budgets.day import DayFile
from sandboxd.supervisor.budgets.ledger import Account
from sandboxd_proto.errors import BudgetExceeded, Conflict, InvalidParams
from sandboxd_proto.messages.session import Budget

NO_CAP = SessionCapConfig()
LIMIT = st.none() | st.integers(0, 50)


def chain(*limits: Budget) -> list[Account]:
    accounts = [Account("user", None, Budget(), 0.0)]
    for number, budget in enumerate(limits):
        accounts.append(Account(f"se-{number}", accounts[-1], budget, 0.0))
    return accounts


CHARGES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 2_000_000)))


@given(st.lists(st.tuples(LIMIT, LIMIT, LIMIT), min_size=1, max_size=4), CHARGES)
def test_no_sum_ever_exceeds_a_limit_and_a_refusal_changes_nothing(
    limits: list[tuple[int | None, ...]], charges: list[tuple[int, int, int]]
) -> None:
    budgets = [Budget(max_tokens_in=i, max_tokens_out=o, max_cost_usd=c) for i, o, c in limits]
    accounts = chain(*budgets)
    taken = Amounts()
    for charge in (Amounts(*amounts) for amounts in charges):
        before = [account.amounts for account in accounts]
        refused = None
        try:
            ledger.check_charge(accounts[-1], charge, NO_CAP)
        except BudgetExceeded as error:
            refused = error
        if refused is not None:
            assert [account.amounts for account in accounts] == before
            assert refused.facts["observed"] > refused.facts["limit"]
            continue
        ledger.apply_charge(accounts[-1], charge, None)
        taken = taken.plus(charge)
    for account in accounts:
        assert account.amounts == taken
        limit = account.limits
        assert limit.max_tokens_in is None or taken.tokens_in <= limit.max_tokens_in
        assert limit.max_cost_usd is None or taken.cost_micros <= limit.max_cost_usd * 1_000_000


@given(st.lists(st.integers(0, 10**9)))
def test_money_is_summed_exactly(micros: list[int]) -> None:
    (_, account) = chain(Budget())
    for amount in micros:
        ledger.apply_charge(account, charge_of(0, 0, amount / 1_000_000), None)
    assert account.amounts.cost_micros == sum(micros)


@pytest.mark.parametrize("usd", [float("nan"), float("inf"), -0.01])
def test_money_that_is_none_is_refused(usd: float) -> None:
    with pytest.raises(InvalidParams):
        to_micros(usd, "cost_usd")


def test_a_charge_at_the_limit_passes_and_one_above_does_not() -> None:
    (_, account) = chain(Budget(max_cost_usd=1.5))
    charge = charge_of(0, 0, 1.5)
    ledger.check_charge(account, charge, NO_CAP)
    ledger.apply_charge(account, charge, None)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.check_charge(account, charge_of(0, 0, 0.000001), NO_CAP)
    assert caught.value.facts["reason"] == "max_cost_usd"


def test_the_stricter_limit_holds_wherever_it_is() -> None:
    _, above, below = chain(Budget(max_tokens_in=5), Budget(max_tokens_in=100))
    with pytest.raises(BudgetExceeded) as caught:
        ledger.check_charge(below, Amounts(6), NO_CAP)
    assert caught.value.facts["session"] == above.session


def test_a_charge_with_the_same_id_counts_once() -> None:
    (_, account) = chain(Budget())
    assert not ledger.is_repeated(account, "r1", Amounts(1))
    ledger.apply_charge(account, Amounts(1), "r1")
    assert ledger.is_repeated(account, "r1", Amounts(1))
    with pytest.raises(Conflict):
        ledger.is_repeated(account, "r1", Amounts(2))


def test_one_warning_at_eighty_percent_until_the_limit_is_raised() -> None:
    (_, account) = chain(Budget(max_tokens_in=10))
    ledger.apply_charge(account, Amounts(7), None)
    assert ledger.warnings(account, 0.0) == []
    ledger.apply_charge(account, Amounts(1), None)
    assert [w.reason for w in ledger.warnings(account, 0.0)] == ["max_tokens_in"]
    assert ledger.warnings(account, 0.0) == []
    account.limits = Budget(max_tokens_in=9)
    assert len(ledger.warnings(account, 0.0)) == 1


def test_runtime_counts_what_runs_and_what_ran() -> None:
    _, above, below = chain(Budget(max_tool_runtime_secs=10), Budget())
    ledger.begin(below, "a", 0.0)
    ledger.begin(below, "b", 1.0)
    assert above.runtime(3.0) == 5.0
    assert ledger.seconds_left(below, 3.0) == 2.5
    ledger.end(below, "a", 4.0)
    assert above.runtime(5.0) == 8.0
    with pytest.raises(BudgetExceeded):
        ledger.check_start(below, 7.0)


def test_executions_at_once_and_depth() -> None:
    _, root, child = chain(Budget(max_processes=1, max_agent_depth=1), Budget())
    ledger.begin(child, "a", 0.0)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.check_start(root, 0.0)
    assert caught.value.facts["observed"] == 2
    ledger.check_depth(root)
    with pytest.raises(BudgetExceeded):
        ledger.check_depth(child)


DAY = 1_800_000_000.0


def test_the_day_is_summed_reset_at_midnight_and_never_set_back(tmp_path: Path) -> None:
    day = DayFile(str(tmp_path), 1.0)
    day.charge(600_000, DAY)
    with pytest.raises(BudgetExceeded) as caught:
        day.charge(600_000, DAY)
    assert caught.value.facts["observed"] == 1.2
    day.charge(900_000, DAY + 86400)
    with pytest.raises(BudgetExceeded):
        day.charge(200_000, DAY)
    assert day.spent(DAY) == 900_000


def test_an_unreadable_day_refuses_and_names_its_file(tmp_path: Path) -> None:
    day = DayFile(str(tmp_path), 1.0)
    Path(day.path).write_text("nonsense")
    with pytest.raises(BudgetExceeded, match=r"day\.json"):
        day.charge(1, DAY)
    day.charge(0, DAY)
    Path(day.path).write_text(json.dumps({"date": "2027-01-15", "cost_micros": 5}))
    day.charge(1, DAY)
