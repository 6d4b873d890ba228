"""`sandboxctl top`: sessions as a tree, what runs, what waits and what it cost, kept up to date."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from sandboxd_client.cli.approve import ENDS
from sandboxd_client.cli.approver_connection import ApproverConnection, approver
from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import printable
from sandboxd_client.cli.sessions import tree
from sandboxd_client.cli.terminal import size

if sys.platform == "win32":
    from sandboxd_client.cli.raw_mode_windows import SingleKeys
else:
    from sandboxd_client.cli.raw_mode import SingleKeys

REFRESH_S = 1.0


def main(options: Options) -> int:
    with approver(options) as link:
        if options.has("--json"):
            print_json(state(link))
            return 0
        if options.has("--once") or not (os.isatty(0) and os.isatty(1)):
            print("\n".join(lines(state(link))))
            return 0
        with SingleKeys() as keys:
            return _live(link, keys)


def state(link: ApproverConnection) -> dict[str, Any]:
    return {
        "sessions": link.call("session/list")["sessions"],
        "executions": link.call("execution/list")["executions"],
        "approvals": link.call("approval/list")["approvals"],
    }


def lines(found: dict[str, Any]) -> list[str]:
    rows = tree(found["sessions"]) or ["no session is open"]
    if found["executions"]:
        rows += ["", "RUNNING"]
        rows += [
            f"  {printable(one['execution_id']):<38} {printable(' '.join(one['argv']))}"
            for one in found["executions"]
        ]
    if found["approvals"]:
        rows += ["", "WAITING (sandboxctl approve)"]
        rows += [f"  {one['approval']}  {printable(one['question'])}" for one in found["approvals"]]
    return rows


def _live(link: ApproverConnection, keys: SingleKeys) -> int:
    while True:
        height, width = size()
        rows = [row[:width] for row in lines(state(link))][: height - 2]
        clock = time.strftime("%H:%M:%S")
        print("\x1b[H\x1b[J" + "\n".join([*rows, "", f"{clock}  q ends"]), end="", flush=True)
        link.notifications.clear()
        is_typed, is_told = keys.wait(link, REFRESH_S)
        if is_typed and keys.read(64) in ("q", *ENDS):
            print()
            return 0
        if is_told:
            link.receive(0)
            time.sleep(0.1)
