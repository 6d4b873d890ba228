"""`run` while its command waits for an approval: say how to decide it (`terminal_approver`
asks here)."""

from __future__ import annotations

import time

from sandboxd_client.cli.screen import say

ONE_COMMAND = "sandboxctl run"  # the title of a session that ends with its command
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def tell(
    approval: dict[str, Any],
    pending: dict[str, Any],
    say: Callable[[str], None] = say,
    *,
    ask: bool = False,
) -> None:
    """The question, and the command that decides it elsewhere. `pending`: the notification. `ask`:
    --ask was given, and the question was left undecided here."""
    if approval.get("state") != "pending":
        return
    from sandboxd_client.cli.screen import printable

    say(f"waits for an approval: {printable(approval['question'])}")
    ends_with_it = approval.get("title") == ONE_COMMAND
    choices = f"{'' if ends_with_it else '--session, '}--always, --deny"
    say(
        f"decide in another terminal: sandboxctl approve {approval['approval']} --once "
        f"(or {choices}){'' if ask else '; with --ask you decide here'}"
    )
    if approval.get("effect") == "edit":
        say("without writing (--preset read-only) it would not be asked about")
    left_s = float(pending.get("expires_ms") or 0) / 1000 - time.time()
    if not pending.get("approvers") and left_s > 0:
        say(f"no approver is connected: it is refused in {left_s:.0f} s unless one comes by then")


def offer(result: dict[str, Any], *, own_session: bool) -> str | None:
    """How an approver can allow what was denied, and what to do then."""
    approval_id = offered(result)
    if approval_id is None:
        return None
    if own_session:
        return "with --ask you can allow it here: once, or always in this workspace"
    return (
        f"or have it allowed: sandboxctl approve {approval_id} --once (or --session, --always); "
        "then run the same command again"
    )


def offered(result: dict[str, Any]) -> str | None:
    widening = result.get("widening") or {}
    return str(widening["approval"]) if widening.get("state") == "pending" else None
