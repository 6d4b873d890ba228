"""`sandboxctl sessions`: the sessions of all agents, as a tree."""

from __future__ import annotations

from typing import Any

from sandboxd_client.cli.approver_connection import approver
from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import printable, say

Message = dict[str, Any]


def main(options: Options) -> int:
    with approver(options) as link:
        found = link.call("session/list")["sessions"]
    if options.has("--json"):
        print_json({"sessions": found})
        return 0
    for line in tree(found):
        print(line)
    if not found:
        say("no session is open")
    return 0


def tree(sessions: list[Message]) -> list[str]:
    if not sessions:
        return []
    lines = [f"{'SESSION':<42} {'MODE':<10} {'STATE':<10} RUN WAIT     COST  TITLE"]
    known = {one["session"] for one in sessions}
    roots = [one for one in sessions if one["parent"] not in known]
    for root in roots:
        lines += _below(root, sessions, 0)
    return lines


def _below(one: Message, sessions: list[Message], depth: int) -> list[str]:
    mode = "plan" if one["plan"] else one["mode"]
    name = "  " * depth + one["session"]
    title = one["title"] or one["name"] or ""
    line = (
        f"{name:<42} {mode:<10} {one['state']:<10} {one['executions']:>3} {one['approvals']:>4} "
        f"{one['usage']['cost_usd']:>8.2f}  {printable(title)}"
    ).rstrip()
    children = [other for other in sessions if other["parent"] == one["session"]]
    return [line, *(row for child in children for row in _below(child, sessions, depth + 1))]
