"""Budgets over the wire: roll-up, warnings, hard stops, raises, idempotent charges."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import Connection
from support.sessions import connect_approver, decide, error_of, open_session, pending, trail

pytestmark = pytest.mark.requires("bubblewrap")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def worker(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as connection:
        yield connection


def test_a_charge_rolls_up_and_a_refused_one_changes_nothing(worker: Connection) -> None:
    root = open_session(worker, budget={"max_cost_usd": 1.0})
    child = open_session(worker, parent=root["session"])
    charge = {"session": child["session"], "cost_usd": 0.6, "tokens_in": 5}
    charged = worker.call("session/charge", charge)
    assert charged["usage"]["cost_usd"] == 0.6
    assert (charged["fraction"], charged["repeated"]) == (0.6, False)
    error = error_of(
        lambda: worker.call("session/charge", charge), "BudgetExceeded", reason="max_cost_usd"
    )
    assert (error.data["observed"], error.data["limit"]) == (1.2, 1.0)
    assert error.data["session"] == root["session"]
    for one in worker.call("session/list")["sessions"]:
        assert (one["usage"]["cost_usd"], one["usage"]["tokens_in"]) == (0.6, 5)


def test_charges_are_idempotent_by_request_id(worker: Connection) -> None:
    open_session(worker)
    charge = {"tokens_out": 3, "request_id": "r1"}
    assert worker.call("session/charge", charge)["repeated"] is False
    assert worker.call("session/charge", charge)["repeated"] is True
    other = {"tokens_out": 4, "request_id": "r1"}
    error_of(lambda: worker.call("session/charge", other), "Conflict", reason="request_id")
    assert worker.call("session/charge", {})["usage"]["tokens_out"] == 3


@pytest.mark.parametrize("bad", [{"cost_usd": -1}, {"tokens_in": -1}, {"cost_usd": 1e12}])
def test_amounts_that_are_none_are_invalid(worker: Connection, bad: dict[str, float]) -> None:
    open_session(worker)
    error_of(lambda: worker.call("session/charge", bad), "InvalidParams")
    budget = {"max_tokens_in": -1}
    error_of(lambda: open_session(worker, budget=budget), "InvalidParams")


def test_one_warning_at_80_percent(daemon: Daemon, worker: Connection) -> None:
    session = open_session(worker, budget={"max_tokens_in": 100})
    for _ in range(3):
        worker.call("session/charge", {"tokens_in": 28})
    warning = worker.notification("budget/warning")
    assert warning == {
        "session": session["session"], "reason": "max_tokens_in", "observed": 84, "limit": 100,
        "fraction": 0.84,
    }  # fmt: skip
    worker.call("session/charge", {"tokens_in": 1})
    error_of(lambda: worker.call("session/charge", {"tokens_in": 90}), "BudgetExceeded")
    error_of(lambda: worker.call("session/charge", {"tokens_in": 90}), "BudgetExceeded")
    told = [n["method"] for n in worker.notifications]
    assert told.count("budget/warning") == 1
    assert told.count("budget/exceeded") == 1
    kinds = [r["type"] for r in trail(daemon) if r["session"] == session["session"]]
    assert {"budget.charged", "budget.warned", "budget.exceeded"} <= set(kinds)


def test_wall_time_kills_and_an_approver_leads_back(daemon: Daemon, worker: Connection) -> None:
    session = open_session(worker, budget={"max_wall_time_secs": 0.6})
    with connect_approver(daemon) as approver:
        result = worker.call("execute", {"argv": ["sleep", "60"]})
        assert result["outcome"] == "budget"
        used = result["budget"]
        assert (used["session"], used["reason"]) == (session["session"], "max_wall_time_secs")
        assert used["limit"] == 0.6 <= used["observed"]
        worker.notification("session/changed", state="exhausted")
        error_of(lambda: worker.call("execute", {"argv": ["true"]}), "BudgetExceeded")
        raised = {"session": session["session"], "budget": {"max_wall_time_secs": 600}}
        assert approver.call("session/update", raised)["state"] == "open"
        assert worker.call("execute", {"argv": ["true"]})["exit_code"] == 0


def test_tool_runtime_is_summed_over_what_runs(worker: Connection) -> None:
    open_session(worker, budget={"max_tool_runtime_secs": 1.0})
    numbers = [worker.start("execute", {"argv": ["sleep", "60"]}) for _ in range(2)]
    for number in numbers:
        assert worker.result(number)["outcome"] == "budget"
    error = error_of(lambda: worker.call("execute", {"argv": ["true"]}), "BudgetExceeded")
    assert error.data["reason"] == "max_tool_runtime_secs"


def test_the_limit_of_a_parent_or_of_the_config_is_named() -> None:
    config = "[budget]\nmax_tool_runtime_secs = 1.0\n"
    with running_daemon(config=config) as daemon, daemon.connect() as worker:
        parent = open_session(worker, budget={"max_wall_time_secs": 0.5})
        open_session(worker, budget={"max_wall_time_secs": 600})
        ended = worker.call("execute", {"argv": ["sleep", "60"]})["budget"]
        assert (ended["session"], ended["limit"]) == (parent["session"], 0.5)
        with daemon.connect() as other:
            ended = other.call("execute", {"argv": ["sleep", "60"]})["budget"]
            assert (ended["session"], ended["reason"]) == ("user", "max_tool_runtime_secs")
            error = error_of(lambda: other.call("execute", {"argv": ["true"]}), "BudgetExceeded")
            assert "[budget] max_tool_runtime_secs in the config" in error.data["remedy"]


def test_executions_at_once_and_depth(worker: Connection) -> None:
    open_session(worker, budget={"max_processes": 1, "max_agent_depth": 1})
    number = worker.start("execute", {"argv": ["sleep", "60"], "execution_id": "only"})
    error = error_of(lambda: worker.call("execute", {"argv": ["true"]}), "BudgetExceeded")
    assert (error.data["reason"], error.data["observed"]) == ("max_processes", 2)
    assert "executions at once" in error.message
    worker.call("execution/cancel", {"execution_id": "only"})
    worker.result(number)
    open_session(worker)
    error = error_of(lambda: open_session(worker), "BudgetExceeded")
    assert error.data["reason"] == "max_agent_depth"


def test_a_worker_asks_for_more(daemon: Daemon, worker: Connection) -> None:
    open_session(worker, budget={"max_tokens_in": 10})
    with connect_approver(daemon) as approver:
        error = error_of(lambda: worker.call("session/charge", {"tokens_in": 15}), "BudgetExceeded")
        (shown,) = pending(approver, kinds=("budget",))
        assert error.data["approval"] == shown["approval"]
        assert shown["add"] == {"budget": {"max_tokens_in": 20}}
        decide(approver, shown, "once")
        assert worker.call("session/charge", {"tokens_in": 15})["usage"]["tokens_in"] == 15
        number = worker.start("session/update", {"budget": {"max_tokens_in": 1000}})
        (shown,) = pending(approver, kinds=("budget",))
        decide(approver, shown, "once")
        assert worker.result(number)["budget"]["max_tokens_in"] == 1000
        narrowed = worker.call("session/update", {"budget": {"max_tokens_in": 16}})
        assert narrowed["budget"]["max_tokens_in"] == 16


def test_the_day_is_shared_and_an_unreadable_file_refuses() -> None:
    config = "[session_cap]\nper_user_daily_usd = 1.0\nper_session_tokens = 100\n"
    with running_daemon(config=config) as daemon, daemon.connect() as worker:
        open_session(worker)
        worker.call("session/charge", {"cost_usd": 0.75})
        with daemon.connect() as other:
            open_session(other)
            error = error_of(
                lambda: other.call("session/charge", {"cost_usd": 0.5}), "BudgetExceeded"
            )
            assert error.data["reason"] == "per_user_daily_usd"
            tokens = {"tokens_in": 60, "tokens_out": 60}
            error = error_of(lambda: other.call("session/charge", tokens), "BudgetExceeded")
            assert error.data["reason"] == "per_session_tokens"
        file = daemon.home / ".local/state/sandboxd/day.json"
        day = json.loads(file.read_text())
        file.write_text(json.dumps({**day, "date": "2999-01-01"}))  # the clock was set back
        error_of(lambda: worker.call("session/charge", {"cost_usd": 0.5}), "BudgetExceeded")
        file.write_text("{")
        small = {"cost_usd": 0.01}
        error = error_of(lambda: worker.call("session/charge", small), "BudgetExceeded")
        assert str(file) in error.message
        worker.call("session/charge", {"tokens_in": 1})
