"""`sandboxctl grants [remove ID]`: what was approved for a session or a workspace."""

from __future__ import annotations

from typing import Any

from sandboxd_client.cli.approver_connection import approver
from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.screen import printable, say
from sandboxd_client.jsontext import dumps


def main(options: Options) -> int:
    words = options.operands
    if words and (words[0] != "remove" or len(words) < 2):
        raise UsageError(f"grants does not know {words[0]!r}", "write sandboxctl grants remove ID")
    with approver(options) as link:
        for grant in words[1:]:
            link.call("grant/remove", {"grant": grant})
        found = link.call("grant/list") if not words else {"grants": []}
    if options.has("--json"):
        print_json(found)
        return 0
    for grant in found["grants"]:
        print(_row(grant))
    if not words and not found["grants"]:
        say("nothing was approved for longer than once")
    return 0


def _row(grant: dict[str, Any]) -> str:
    where = grant["workspace"] or grant["session"]
    until = f", until {grant['expires']}" if grant["expires"] else ""
    what = dumps(grant["add"]).decode() if grant["add"] else f"commands in {grant['match']}"
    return f"{grant['grant']}  {grant['kind']:<6} {printable(where)}{until}: {printable(what)}"
