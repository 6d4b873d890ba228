"""`run --ask`: decide on this terminal what the command waits for, before it starts, while it runs
and after a denial.

Each question has a connection of its own, as approver. What is allowed once is for this `run`: when
the command runs again because more was allowed, the same questions are not asked anew. They are the
same by their digest, which covers the command, its files and its plan.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout

assert sys.platform != "win32"

from sandboxd_client.cli import signals  # noqa: E402 - after the platform is known
from sandboxd_client.cli.approval import offered  # noqa: E402
from sandboxd_client.cli.approve import Queue, decide_again  # noqa: E402
from sandboxd_client.cli.approver_connection import ApproverConnection  # noqa: E402
from sandboxd_client.cli.execute import Left  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandboxd_client.cli.approve import Outcome

_ENDING = (signals.INT, signals.QUIT, signals.TERM, signals.HUP)


class Asker:
    """The questions of one `run`. `arrived`: signals that came during the last one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._allowed: set[str] = set()  # digests
        self._refused: set[tuple[str, str]] = set()  # pieces of additions
        self.arrived: list[int] = []

    def decide(self, approval_id: str, watched: signals.Signals) -> Outcome:
        """Quitting decides nothing, and a signal that ends us neither."""
        self.arrived = []
        shown = sys.stderr if os.isatty(2) else sys.stdout  # stdout may be redirected
        with redirect_stdout(shown), ApproverConnection(self._path, types=["-"]) as link:
            waiting = link.call("approval/list")["approvals"]
            found = next((one for one in waiting if one["approval"] == approval_id), None)
            if found is None:
                return "over"
            if found["digest"] in self._allowed:
                return decide_again(link, found)
            queue = Queue(link, wake=watched.fd, is_left=lambda: self._is_left(watched))
            answer = queue.ask(found)
        if answer == "allowed":
            self._allowed.add(found["digest"])
        elif answer == "refused":
            self._refused |= _pieces(found.get("add"))
        return answer

    def allows(self, result: dict[str, Any]) -> bool:
        """Whether the command is to run again, with what it was denied. Not asked after a signal of
        the user, who wants to end it and types the next command already; nor about what was refused
        a moment ago. Left: the question was answered with one."""
        approval_id = offered(result)
        wanted = _pieces((result.get("widening") or {}).get("add"))
        if approval_id is None or signals.is_sent() or (wanted and wanted <= self._refused):
            return False
        with signals.Signals() as watched:
            answer = self.decide(approval_id, watched)
        if answer == "interrupted":
            signals.user_sent(signals.INT, typed=True)
            raise Left(128 + signals.INT)
        for number in self.arrived:
            if number in signals.KEYS:
                signals.user_sent(number, typed=False)
            if number in _ENDING:
                raise Left(128 + number)
        return answer == "allowed"

    def _is_left(self, watched: signals.Signals) -> bool:
        self.arrived += watched.read()
        return any(number in _ENDING for number in self.arrived)


def _pieces(add: Any) -> set[tuple[str, str]]:
    """Paths, hosts without their ports, limits."""
    found: set[tuple[str, str]] = set()
    for field, value in (add or {}).items():
        if field == "network":
            found |= {(field, host.partition(":")[0]) for host in value.get("hosts", ())}
        elif isinstance(value, list):
            found |= {(field, str(one)) for one in value}
        else:
            found.add((field, str(value)))
    return found
