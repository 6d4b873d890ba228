"""The budgets of a tree of sessions. It does no I/O: time is given, nothing is stored.

A charge or a start is checked against every session from the one that asks up to the user. The
first limit that would be exceeded refuses it, and then nothing is changed anywhere.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from sandboxd.config.config import SessionCapConfig
from sandboxd.supervisor.budgets.amounts import Amounts, to_micros, to_usd
from sandboxd_proto.errors import BudgetExceeded, Busy, Conflict, InvalidParams
from sandboxd_proto.messages.session import Budget, SessionUsage

USER = "user"  # the root of the tree: what the config says of the user as a whole
WARN_AT = 0.8
NOTHING_USED = Amounts()
NO_LIMITS = Budget()
KEPT_REQUEST_IDS = 1024
MOST_DEEP = 64  # each request is checked against every session above
LONGEST_REQUEST_ID = 128


@dataclass(slots=True)
class Account:
    """What one session and all below it have used. The user's own account has no parent."""

    session: str
    parent: Account | None
    limits: Budget
    opened_at: float
    amounts: Amounts = NOTHING_USED
    finished_runtime: float = 0.0
    started: dict[str, float] = field(default_factory=dict)
    warned: set[tuple[str, float]] = field(default_factory=set)
    charges: OrderedDict[str, Amounts] = field(default_factory=OrderedDict)
    _above: tuple[Account, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._above = self.parent.upwards() if self.parent is not None else ()

    @property
    def depth(self) -> int:
        """A root session is 0; the user's account is -1."""
        return -1 if self.parent is None else self.parent.depth + 1

    def upwards(self) -> tuple[Account, ...]:
        return (self, *self._above)

    def runtime(self, now: float) -> float:
        return self.finished_runtime + sum(now - began for began in self.started.values())

    def usage(self, now: float) -> SessionUsage:
        return SessionUsage(
            wall_time_secs=round(max(now - self.opened_at, 0.0), 6),
            tool_runtime_secs=round(self.runtime(now), 6),
            processes=len(self.started),
            tokens_in=self.amounts.tokens_in,
            tokens_out=self.amounts.tokens_out,
            cost_usd=to_usd(self.amounts.cost_micros),
        )


class UsedLimit(msgspec.Struct, frozen=True):
    """A limit, and how much of it is used. `session`: whose limit it is."""

    session: str
    reason: str
    observed: float
    limit: float

    @property
    def fraction(self) -> float:
        return self.observed / self.limit if self.limit else 1.0


def check_budget(budget: Budget) -> Budget:
    """InvalidParams for a limit that is negative or no number."""
    for name in budget.__struct_fields__:
        value = getattr(budget, name)
        if value is not None and not 0 <= value < float("inf"):
            raise InvalidParams(f"{name} must be 0 or more", field=f"budget.{name}")
    if budget.max_cost_usd is not None:
        to_micros(budget.max_cost_usd, "budget.max_cost_usd")
    return budget


def is_repeated(account: Account, request_id: str | None, charge: Amounts) -> bool:
    """Whether this charge was made already; Conflict if the id was used for another one."""
    if request_id is None:
        return False
    if not 0 < len(request_id) <= LONGEST_REQUEST_ID:
        raise InvalidParams(
            f"a request_id has 1 to {LONGEST_REQUEST_ID} characters", field="request_id"
        )
    before = account.charges.get(request_id)
    if before is None:
        return False
    if before != charge:
        raise Conflict(
            f"the request_id {request_id!r} was used for another charge", reason="request_id",
            remedy="use a new request_id for a new charge",
        )  # fmt: skip
    return True


def check_charge(account: Account, charge: Amounts, cap: SessionCapConfig) -> None:
    for node in account.upwards():
        after = node.amounts.plus(charge)
        limits = node.limits
        _check(node, "max_tokens_in", after.tokens_in, limits.max_tokens_in)
        _check(node, "max_tokens_out", after.tokens_out, limits.max_tokens_out)
        _check_cost(node, "max_cost_usd", after.cost_micros, limits.max_cost_usd)
    for node in account.upwards():
        if node.parent is None:
            continue
        after = node.amounts.plus(charge)
        tokens = after.tokens_in + after.tokens_out
        _check(node, "per_session_tokens", tokens, cap.per_session_tokens)
        _check_cost(node, "per_session_usd", after.cost_micros, cap.per_session_usd)


def apply_charge(account: Account, charge: Amounts, request_id: str | None) -> None:
    for node in account.upwards():
        node.amounts = node.amounts.plus(charge)
    if request_id is not None:
        account.charges[request_id] = charge
        while len(account.charges) > KEPT_REQUEST_IDS:
            account.charges.popitem(last=False)


def check_start(account: Account, now: float) -> None:
    """Before an execution starts. A time limit that is reached exactly counts as exceeded."""
    for node in account.upwards():
        limits = node.limits
        if limits == NO_LIMITS:
            continue
        _check(node, "max_processes", len(node.started) + 1, limits.max_processes)
        _check_time(node, "max_wall_time_secs", now - node.opened_at, limits.max_wall_time_secs)
        _check_time(node, "max_tool_runtime_secs", node.runtime(now), limits.max_tool_runtime_secs)


def check_depth(parent: Account) -> None:
    """Before a session below `parent` is opened."""
    depth = parent.depth + 1
    if depth >= MOST_DEEP:
        raise Busy(
            f"sessions are nested {MOST_DEEP} deep already",
            remedy="open it on a connection of its own, or below another session",
        )
    for node in parent.upwards():
        _check(node, "max_agent_depth", depth, node.limits.max_agent_depth)


def begin(account: Account, execution_id: str, now: float) -> None:
    for node in account.upwards():
        node.started[execution_id] = now


def end(account: Account, execution_id: str, now: float) -> None:
    if execution_id not in account.started:
        return
    for node in account.upwards():
        began = node.started.pop(execution_id, None)
        if began is not None:
            node.finished_runtime += max(now - began, 0.0)


def seconds_left(account: Account, now: float) -> float | None:
    """Until a time limit of the session, or of one above it, is reached; None without limits."""
    for node in account.upwards():
        if node.limits != NO_LIMITS:
            break
    else:
        return None
    return min((left for left, _ in _time_limits(account, now)), default=None)


def nearest_limit(account: Account, now: float) -> UsedLimit | None:
    """The time limit that is nearest, or was passed first; None without one."""
    found = sorted(_time_limits(account, now), key=lambda one: one[0])
    return found[0][1] if found else None


def _time_limits(account: Account, now: float) -> Iterator[tuple[float, UsedLimit]]:
    """With the seconds until each is reached."""
    for node in account.upwards():
        limit = node.limits.max_wall_time_secs
        if limit is not None:
            used = now - node.opened_at
            yield limit - used, UsedLimit(node.session, "max_wall_time_secs", used, limit)
        limit = node.limits.max_tool_runtime_secs
        if limit is not None:
            used, running = node.runtime(now), max(len(node.started), 1)
            left = (limit - used) / running
            yield left, UsedLimit(node.session, "max_tool_runtime_secs", used, limit)


def warnings(account: Account, now: float) -> list[UsedLimit]:
    """Limits of which 80 % are used and that were not warned about since they were raised."""
    found: list[UsedLimit] = []
    for node in account.upwards():
        for reason, observed, limit in _measures(node, now):
            if limit > 0 and observed >= WARN_AT * limit and (reason, limit) not in node.warned:
                node.warned.add((reason, limit))
                found.append(UsedLimit(node.session, reason, observed, limit))
    return found


def fraction(account: Account, now: float) -> float:
    """Of the limit that is nearest, over the session and all above it."""
    used = [
        observed / limit if limit > 0 else 1.0
        for node in account.upwards()
        for _, observed, limit in _measures(node, now)
    ]
    return round(max(used, default=0.0), 6)


def _measures(node: Account, now: float) -> Iterator[tuple[str, float, float]]:
    usage, limits = node.usage(now), node.limits
    pairs = (
        ("max_wall_time_secs", usage.wall_time_secs, limits.max_wall_time_secs),
        ("max_tool_runtime_secs", usage.tool_runtime_secs, limits.max_tool_runtime_secs),
        ("max_tokens_in", usage.tokens_in, limits.max_tokens_in),
        ("max_tokens_out", usage.tokens_out, limits.max_tokens_out),
        ("max_cost_usd", usage.cost_usd, limits.max_cost_usd),
    )
    for reason, observed, limit in pairs:
        if limit is not None:
            yield reason, observed, limit


def _check(node: Account, reason: str, observed: float, limit: float | None) -> None:
    if limit is not None and observed > limit:
        raise budget_error(node.session, reason, observed, limit)


def _check_time(node: Account, reason: str, observed: float, limit: float | None) -> None:
    if limit is not None and observed >= limit:
        raise budget_error(node.session, reason, round(observed, 6), limit)


def _check_cost(node: Account, reason: str, micros: int, limit: float | None) -> None:
    if limit is not None and micros > to_micros(limit, reason):
        raise budget_error(node.session, reason, to_usd(micros), limit)


def budget_error(session: str, reason: str, observed: float, limit: float) -> BudgetExceeded:
    what = "executions at once in this session" if reason == "max_processes" else reason
    return BudgetExceeded(
        f"the budget does not allow this: {what} would be {observed:g}, and the limit is {limit:g}",
        reason=reason, observed=observed, limit=limit, session=session,
        remedy=_remedy(session, reason),
    )  # fmt: skip


def _remedy(session: str, reason: str) -> str:
    """An approver can raise what a session was opened with; the rest is the config's."""
    if reason not in Budget.__struct_fields__:
        return f"raise [session_cap] {reason} in the config and restart sandboxd"
    if session == USER:
        return f"raise [budget] {reason} in the config and restart sandboxd"
    return "ask an approver for more (session/update with a larger budget)"
