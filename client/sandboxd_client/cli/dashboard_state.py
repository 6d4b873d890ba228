"""What the dashboard shows, read from the daemon as approver, and the decisions that it makes."""

from __future__ import annotations

import threading
from typing import Any

from sandboxd_client.cli.approver_connection import ApproverConnection
from sandboxd_client.errors import ConnectionLost

Message = dict[str, Any]
RECORDS = 300
_DECISION = ("approval", "digest", "choice", "message")


class DashboardState:
    """One connection for all requests of the page; made anew when the daemon was restarted."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._link: ApproverConnection | None = ApproverConnection(path, types=["-"])

    def __enter__(self) -> DashboardState:
        return self

    def __exit__(self, *error: object) -> None:
        if self._link is not None:
            self._link.__exit__()

    def read(self) -> Message:
        return {
            "sessions": self._call("session/list")["sessions"],
            "executions": self._call("execution/list")["executions"],
            "approvals": self._call("approval/list")["approvals"],
            "records": self._records(),
        }

    def decide(self, given: Message) -> Message:
        """A decision repeats the digest that the page showed."""
        params = {name: given[name] for name in _DECISION if isinstance(given.get(name), str)}
        return self._call("approval/decide", params)

    def _records(self) -> list[Message]:
        head = self._call("audit/query", {"limit": 1})["head"]["seq"]
        after = str(max(head - RECORDS, 0))
        found: list[Message] = self._call("audit/query", {"after": after, "limit": RECORDS})[
            "records"
        ]
        return found[::-1]

    def _call(self, method: str, params: Message | None = None) -> Message:
        with self._lock:
            if self._link is None:
                self._link = ApproverConnection(self._path, types=["-"])
            try:
                self._link.notifications.clear()
                return self._link.call(method, params)
            except ConnectionLost:
                self._link = None
                raise
