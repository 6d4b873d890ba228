"""`sandboxctl budget [ID]`: what sessions may use, and what they have used."""

from __future__ import annotations

from typing import Any

from sandboxd_client.cli.approver_connection import approver
from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import say
from sandboxd_proto.errors import NotFound

_USED = {
    "max_wall_time_secs": "wall_time_secs", "max_tool_runtime_secs": "tool_runtime_secs",
    "max_processes": "processes", "max_tokens_in": "tokens_in", "max_tokens_out": "tokens_out",
    "max_cost_usd": "cost_usd",
}  # fmt: skip


def main(options: Options) -> int:
    with approver(options) as link:
        found = link.call("session/list")["sessions"]
    if options.operands:
        found = [one for one in found if one["session"] in options.operands]
        if not found:
            raise NotFound(
                f"there is no session {options.operands[0]!r}",
                remedy="sandboxctl sessions lists them",
            )
    if options.has("--json"):
        rows = [{name: one[name] for name in ("session", "budget", "usage")} for one in found]
        print_json({"sessions": rows})
        return 0
    if not found:
        say("no session is open")
    for one in found:
        print(f"{one['session']}  {one['title'] or ''}".rstrip())
        for line in amounts(one):
            print(f"  {line}")
    return 0


def amounts(session: dict[str, Any]) -> list[str]:
    usage, limits = session["usage"], session["budget"]
    lines = []
    for limit, used in _USED.items():
        if limit in limits:
            share = usage[used] / limits[limit] * 100 if limits[limit] else 100.0
            lines.append(f"{used:<18} {usage[used]:g} of {limits[limit]:g} ({share:.0f} %)")
        elif usage[used]:
            lines.append(f"{used:<18} {usage[used]:g}")
    return lines
