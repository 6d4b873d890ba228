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
    rows: list[tuple[str, ...]] = [("SESSION", "MODE", "STATE", "RUN", "WAIT", "COST", "TITLE")]
    known = {one["session"] for one in sessions}
    for root in sessions:
        if root["parent"] not in known:
            rows += _below(root, sessions, 0)
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    return [
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        + f" {row[6]}".rstrip()
        for row in rows
    ]


def _below(one: Message, sessions: list[Message], depth: int) -> list[tuple[str, ...]]:
    row = (
        "  " * depth + one["session"],
        "plan" if one["plan"] else one["mode"],
        one["state"],
        str(one["executions"]),
        str(one["approvals"]),
        f"{one['usage']['cost_usd']:.2f}",
        printable(one["title"] or one["name"] or ""),
    )
    children = [other for other in sessions if other["parent"] == one["session"]]
    return [row, *(line for child in children for line in _below(child, sessions, depth + 1))]
