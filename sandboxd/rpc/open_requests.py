"""Requests of one connection that have no answer yet, by id: what `$/cancelRequest` ends."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec

from sandboxd.supervisor.execution.execution import Execution


class OpenRequests:
    def __init__(self) -> None:
        self._executions: dict[Any, Execution] = {}
        self._cancelled: dict[Any, anyio.Event] = {}

    def runs(self, request_id: Any, execution: Execution) -> None:
        """`$/cancelRequest` with this id ends that execution, as long as its request is open."""
        if request_id is not msgspec.UNSET and request_id is not None:
            self._executions[request_id] = execution

    def execution(self, request_id: Any) -> Execution | None:
        return self._executions.get(request_id)

    def cancelled(self, request_id: Any) -> anyio.Event:
        """Set by `$/cancelRequest` for a request that waits and has no execution."""
        return self._cancelled.setdefault(request_id, anyio.Event())

    def close(self, request_id: Any, execution: Execution | None) -> None:
        """`execution`: the one that this request began; a later request may have the same id."""
        self._cancelled.pop(request_id, None)
        if execution is not None and self._executions.get(request_id) is execution:
            del self._executions[request_id]

    def cancel(self, params: Any) -> None:
        wanted = params.get("id") if isinstance(params, dict) else None
        if isinstance(wanted, str | int | float) and not isinstance(wanted, bool):
            execution = self._executions.get(wanted)
            if execution is not None:
                execution.cancel()
            elif wanted in self._cancelled:
                self._cancelled[wanted].set()
