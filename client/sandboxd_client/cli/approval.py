"""`run` while its command waits for an approval: say how to decide, or decide here (`--ask`)."""

from __future__ import annotations

import time

from sandboxd_client.cli.screen import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def tell(approval: dict[str, Any], pending: dict[str, Any]) -> None:
    """The question, and the command that decides it elsewhere. `pending`: the notification."""
    if approval.get("state") != "pending":
        return
    from sandboxd_client.cli.screen import printable

    say(f"waits for an approval: {printable(approval['question'])}")
    say(
        f"decide in another terminal: sandboxctl approve {approval['approval']} --once "
        "(or --deny); with --ask you decide here"
    )
    if approval.get("effect") == "edit":
        say("without writing (--preset read-only) it would not be asked about")
    left_s = float(pending.get("expires_ms") or 0) / 1000 - time.time()
    if not pending.get("approvers") and left_s > 0:
        say(f"no approver is connected: it is refused in {left_s:.0f} s unless one comes by then")


def decide_here(path: str, approval_id: str) -> None:
    """Over a second connection, as approver. Quitting decides nothing: it goes on waiting."""
    from sandboxd_client.cli.approve import Queue
    from sandboxd_client.cli.approver_connection import ApproverConnection

    with ApproverConnection(path, types=["-"]) as link:
        found = link.call("approval/list")["approvals"]
        for waiting in found:
            if waiting["approval"] == approval_id:
                Queue(link).ask(waiting)
