"""`run` while its command waits for an approval: say how to decide, or decide here (`--ask`)."""

from __future__ import annotations

import time

from sandboxd_client.cli.screen import say

ONE_COMMAND = "sandboxctl run"  # the title of a session that ends with its command
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def tell(approval: dict[str, Any], pending: dict[str, Any]) -> None:
    """The question, and the command that decides it elsewhere. `pending`: the notification."""
    if approval.get("state") != "pending":
        return
    from sandboxd_client.cli.screen import printable

    say(f"waits for an approval: {printable(approval['question'])}")
    ends_with_it = approval.get("title") == ONE_COMMAND
    choices = f"{'' if ends_with_it else '--session, '}--always, --deny"
    say(
        f"decide in another terminal: sandboxctl approve {approval['approval']} --once "
        f"(or {choices}); with --ask you decide here"
    )
    if approval.get("effect") == "edit":
        say("without writing (--preset read-only) it would not be asked about")
    left_s = float(pending.get("expires_ms") or 0) / 1000 - time.time()
    if not pending.get("approvers") and left_s > 0:
        say(f"no approver is connected: it is refused in {left_s:.0f} s unless one comes by then")


def offer(result: dict[str, Any], *, own_session: bool) -> str | None:
    """How an approver can allow what was denied, and what to do then."""
    approval_id = _offered(result)
    if approval_id is None:
        return None
    if own_session:
        return "with --ask you can allow it here: once, or always in this workspace"
    return (
        f"or have it allowed: sandboxctl approve {approval_id} --once (or --session, --always); "
        "then run the same command again"
    )


def _offered(result: dict[str, Any]) -> str | None:
    widening = result.get("widening") or {}
    return str(widening["approval"]) if widening.get("state") == "pending" else None


def is_allowed_here(path: str, result: dict[str, Any]) -> bool:
    """Ask on this terminal about what was denied."""
    approval_id = _offered(result)
    return approval_id is not None and decide_here(path, approval_id)


def decide_here(path: str, approval_id: str) -> bool:
    """Over a second connection, as approver. Quitting decides nothing: it goes on waiting. Whether
    it was allowed."""
    from sandboxd_client.cli.approve import Queue
    from sandboxd_client.cli.approver_connection import ApproverConnection

    with ApproverConnection(path, types=["-"]) as link:
        found = link.call("approval/list")["approvals"]
        for waiting in found:
            if waiting["approval"] == approval_id:
                return Queue(link).ask(waiting)
    return False
