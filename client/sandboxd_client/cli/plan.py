"""`sandboxctl plan on|off`: plan mode for every session of the daemon; it stays over restarts."""

from __future__ import annotations

from sandboxd_client.cli.approver_connection import approver
from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options


def main(options: Options) -> int:
    on = options.operands[-1] == "on"
    with approver(options) as link:
        changed = link.call("session/update", {"plan": on})
    if options.has("--json"):
        print_json(changed)
    else:
        print(f"plan mode is {'on: only commands that read may run' if on else 'off'}")
    return 0
