"""The executions by id, which sessions may use each, and results that are kept for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from sandboxd import event_loop
from sandboxd.supervisor.classifier import HostTraits
from sandboxd.supervisor.deferred_work import DeferredWork
from sandboxd.supervisor.execution.execution import Execution
from sandboxd.supervisor.execution.output_log import OutputLog
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd.supervisor.sessions.session import Session
from sandboxd_proto.errors import Busy, InvalidParams, NotFound

KEEP_RESULTS_S = 600.0
KEPT_RESULTS = 256
KEPT_BYTES = 64 << 20
_MOST_TOLD = 4096


class Executions:
    def __init__(self, traits: HostTraits, limit: int) -> None:
        self._traits = traits
        self.deferred = DeferredWork()
        self._limit = limit
        self._live: dict[str, Execution] = {}
        self._ended: dict[str, tuple[float, Execution]] = {}
        self._kept_bytes = 0
        self._timer: event_loop.Timer | None = None
        # Who was told what is not protected in a workspace: it is said once.
        self._told: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Execution]:
        return iter(list(self._live.values()))

    def add(self, request: ExecuteRequest) -> Execution:
        wanted = request.execution_id
        if wanted is not None and not 0 < len(wanted) <= 256:
            raise InvalidParams("an execution_id has 1 to 256 characters", field="execution_id")
        if wanted is not None and wanted in self._live:
            raise InvalidParams(
                f"an execution with the id {wanted!r} is running", field="execution_id",
                remedy="choose another id, or leave it out",
            )  # fmt: skip
        if len(self._live) >= self._limit:
            raise Busy(
                f"{self._limit} executions are running already",
                remedy="wait for one to end, or raise max_executions in the config",
            )
        execution = self._make(wanted or f"ex-{os.urandom(16).hex()}", request)
        self._forget(execution.id)
        self._live[execution.id] = execution
        self._tell_unprotected(execution)
        return execution

    def _make(self, execution_id: str, request: ExecuteRequest) -> Execution:
        return Execution(execution_id, request, self._traits, self.deferred)

    def replace(self, before: Execution, request: ExecuteRequest) -> Execution:
        """A further attempt under the same id; what is sent to the first one reaches it."""
        execution = self._make(before.id, request)
        self._tell_unprotected(execution)
        before.release()
        before.successor = execution
        if before.cancel_asked.is_set():
            execution.cancel()
        if before.id in self._live:
            self._live[before.id] = execution
        return execution

    def _tell_unprotected(self, execution: Execution) -> None:
        plan = execution.request.plan
        if not plan.nested.warnings or len(self._told) >= _MOST_TOLD:
            return
        if self._told.setdefault(plan.workspace or "", execution.id) == execution.id:
            for text in plan.nested.warnings:
                execution.warn(text)

    def ended(self, execution: Execution) -> None:
        if execution.over:
            return
        self._live.pop(execution.id, None)
        execution.close()
        if execution.request.detach:
            if self._timer is None:
                self._timer = event_loop.call_later(KEEP_RESULTS_S, self._expire)
            self._ended[execution.id] = (time.monotonic(), execution)
            self._kept_bytes += _size(execution)
            self._forget_old()

    def _expire(self) -> None:
        self._timer = None
        self._forget_old()
        if self._ended:
            self._timer = event_loop.call_later(KEEP_RESULTS_S / 10, self._expire)

    def _forget_old(self) -> None:
        """The newest result is always kept: a client is about to ask for it."""
        oldest = time.monotonic() - KEEP_RESULTS_S
        for key, (when, _) in list(self._ended.items()):
            surplus = len(self._ended) > KEPT_RESULTS or (
                self._kept_bytes > KEPT_BYTES and len(self._ended) > 1
            )
            if when >= oldest and not surplus:
                return
            self._forget(key)

    def _forget(self, key: str) -> None:
        found = self._ended.pop(key, None)
        if found is not None:
            self._kept_bytes -= _size(found[1])

    def find(self, execution_id: str, session: Session | None) -> Execution:
        """A live one that this session may use (None: an approver, who may use all). One of
        another session does not exist for it."""
        return self._check(self._live.get(execution_id), execution_id, session)

    def find_or_ended(self, execution_id: str, session: Session | None) -> Execution:
        self._forget_old()
        found = self._live.get(execution_id)
        if found is None and execution_id in self._ended:
            found = self._ended[execution_id][1]
        return self._check(found, execution_id, session)

    def usable(self, session: Session | None, *, ended: bool = False) -> list[Execution]:
        """`ended`: also those whose results are kept."""
        self._forget_old()
        kept = [e for _, e in self._ended.values()] if ended else []
        return [e for e in (*kept, *self._live.values()) if _may_use(e, session)]

    def _check(
        self, found: Execution | None, execution_id: str, session: Session | None
    ) -> Execution:
        if found is None or not _may_use(found, session):
            raise NotFound(
                f"there is no execution {execution_id!r} on this connection",
                field="execution_id",
                remedy="`execution/list` shows those that this connection may use",
            )
        return found


def _may_use(execution: Execution, session: Session | None) -> bool:
    """Its own session and those above it; all sessions, if it was detached without a session."""
    own = execution.request.session
    if session is None or own is None or own.id in session.family:
        return True
    return execution.request.detach and own.implicit


def _size(execution: Execution) -> int:
    result, listener = execution.result, execution.request.listener
    kept = listener.kept_bytes if isinstance(listener, OutputLog) else 0
    return kept + len(result.stdout.data) + len(result.stderr.data) if result is not None else kept
