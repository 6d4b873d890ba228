"""Limits of a session's budget, as they are typed: runtime=10m, usd=2."""

from __future__ import annotations

from sandboxd_proto.amounts import shown_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMITS = {
    "usd": "max_cost_usd", "runtime": "max_tool_runtime_secs", "wall": "max_wall_time_secs",
    "processes": "max_processes", "depth": "max_agent_depth", "tokens_in": "max_tokens_in",
    "tokens_out": "max_tokens_out",
}  # fmt: skip
TIMES = ("runtime", "wall")
_NAMES = {field: name for name, field in LIMITS.items()}
_THE_USER = "user"  # in place of a session: a limit of the config


def amount(name: str, value: float) -> str:
    return shown_seconds(round(value, 1) or value) if name in TIMES else f"{value:g}"


def limit(field: str, value: float) -> str:
    name = _NAMES.get(field)
    return f"{field} = {value:g}" if name is None else f"{name}={amount(name, value)}"


def used_up(budget: dict[str, Any] | None) -> str:
    """For a command that was ended. `budget`: of its result."""
    if not budget:
        return "ended: the session's budget is used up"
    field, most = str(budget["reason"]), float(budget["limit"])
    if budget["session"] == _THE_USER:
        return f"ended: your budget of {limit(field, most)} is used up ([budget] in the config)"
    raising = _raising(str(budget["session"]), field, 2 * most)
    return f"ended: the session's budget of {limit(field, most)} is used up; {raising}"


def refused(facts: dict[str, Any]) -> tuple[str, str] | None:
    """The message and the hint about something that a session's budget refuses; None: of another
    budget."""
    field, session = str(facts.get("reason")), str(facts.get("session"))
    if field not in _NAMES or session == _THE_USER:
        return None
    most, observed = float(facts["limit"]), float(facts["observed"])
    message = f"the session's budget of {limit(field, most)} does not allow this"
    if _NAMES[field] in TIMES:
        message = f"the session's budget of {limit(field, most)} is used up"
    hint = _raising(session, field, max(2 * most, observed))
    if facts.get("approval"):
        hint += f"; or sandboxctl approve {facts['approval']} --once, which allows that much"
    return message, hint


def _raising(session: str, field: str, value: float) -> str:
    return f"an approver raises it: sandboxctl budget {session} --raise {limit(field, value)}"
