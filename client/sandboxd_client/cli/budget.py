"""`sandboxctl budget [ID]`: what sessions may use, and have used; --raise lets one use more."""

from __future__ import annotations

from typing import Any

from sandboxd_client.cli.approver_connection import ApproverConnection, approver
from sandboxd_client.cli.budget_words import LIMITS, amount, limit
from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.screen import printable, say
from sandboxd_client.cli.session import limits_of
from sandboxd_proto.errors import NotFound

_USED = {
    "wall": "wall_time_secs", "runtime": "tool_runtime_secs", "processes": "processes",
    "tokens_in": "tokens_in", "tokens_out": "tokens_out", "usd": "cost_usd",
}  # fmt: skip


def main(options: Options) -> int:
    more = options.one("--raise")
    if more is not None and len(options.operands) != 1:
        raise UsageError("--raise is for one session", "write sandboxctl budget ID --raise LIMITS")
    with approver(options) as link:
        found = link.call("session/list")["sessions"]
        if options.operands:
            found = [one for one in found if one["session"] in options.operands]
            if not found:
                raise NotFound(
                    f"there is no session {options.operands[0]!r}",
                    remedy="sandboxctl sessions lists them",
                )
        if more is not None:
            found = [_raised(link, found[0], limits_of(more, "--raise"))]
    if options.has("--json"):
        rows = [{name: one[name] for name in ("session", "budget", "usage")} for one in found]
        print_json({"sessions": rows})
        return 0
    if not found:
        say("no session is open")
    for one in found:
        print(f"{one['session']}  {printable(one['title'] or '')}".rstrip())
        for line in amounts(one):
            print(f"  {line}")
    return 0


def _raised(
    link: ApproverConnection, session: dict[str, Any], limits: dict[str, float]
) -> dict[str, Any]:
    for field, value in limits.items():
        present = session["budget"].get(field)
        if present is None or value <= present:
            now = "has no such limit" if present is None else f"may use {limit(field, present)}"
            raise UsageError(
                f"--raise {limit(field, value)} raises nothing: the session {now}",
                "sandboxctl budget shows the limits",
            )
    return link.call("session/update", {"session": session["session"], "budget": limits})


def amounts(session: dict[str, Any]) -> list[str]:
    """By the names of --budget."""
    usage, limits = session["usage"], session["budget"]
    lines = []
    for name, field in _USED.items():
        used, most = usage[field], limits.get(LIMITS[name])
        shown = f"{name:<10} {amount(name, used) if used else 0}"
        if most is not None:
            share = used / most * 100 if most else 100.0
            lines.append(f"{shown} of {amount(name, most)} ({share:.0f} %)")
        elif used:
            lines.append(shown)
    return lines
