"""How many warm sandboxes a plan gets: those that a burst used, fewer with time, then none."""

from __future__ import annotations

import pytest

from sandboxd.supervisor.sandboxes.demand import (
    FORGET_ONCE_S,
    FORGET_S,
    MAX_DEPTH,
    SHRINK_S,
    WINDOW_S,
    Demand,
)

NOW = 1000.0


def used(*times: float) -> Demand:
    demand = Demand()
    for time in times:
        demand.used(time)
    return demand


def test_what_was_never_used_gets_none() -> None:
    assert Demand().depth(NOW) == 0


@pytest.mark.parametrize("count", [1, 2, 3, MAX_DEPTH])
def test_a_burst_gets_as_many_as_it_used(count: int) -> None:
    assert used(*[NOW + n * WINDOW_S / MAX_DEPTH / 2 for n in range(count)]).depth(NOW + 1) == count


def test_a_large_burst_gets_the_most_there_is() -> None:
    assert used(*[NOW] * (5 * MAX_DEPTH)).depth(NOW) == MAX_DEPTH


def test_uses_one_after_another_are_no_burst() -> None:
    assert used(*[NOW + n * 2 * WINDOW_S for n in range(20)]).depth(NOW + 40 * WINDOW_S) == 1


def test_a_smaller_burst_does_not_lower_it() -> None:
    demand = used(*[NOW] * 5)
    demand.used(NOW + 1)
    assert demand.depth(NOW + 1) == 5


def test_after_a_while_without_use_one_is_enough() -> None:
    demand = used(*[NOW] * 5)
    assert demand.depth(NOW + SHRINK_S - 0.1) == 5
    assert demand.depth(NOW + SHRINK_S + 0.1) == 1
    demand.used(NOW + SHRINK_S + 0.2)  # the burst is history
    assert demand.depth(NOW + SHRINK_S + 0.3) == 1


def test_after_longer_none_is_kept() -> None:
    demand = used(NOW, NOW)
    assert demand.depth(NOW + FORGET_S - 0.1) == 1
    assert demand.depth(NOW + FORGET_S + 0.1) == 0


def test_what_was_used_once_is_forgotten_sooner() -> None:
    demand = used(NOW)
    assert demand.depth(NOW + FORGET_ONCE_S - 0.1) == 1
    assert demand.depth(NOW + FORGET_ONCE_S + 0.1) == 0
    assert used(NOW, NOW).depth(NOW + FORGET_ONCE_S + 0.1) == 1


def test_what_cannot_be_opened_is_forgotten_at_once() -> None:
    demand = used(*[NOW] * 5)
    demand.forget()
    assert demand.depth(NOW) == 0
    demand.used(NOW + 1)
    assert demand.depth(NOW + 1) == 1
