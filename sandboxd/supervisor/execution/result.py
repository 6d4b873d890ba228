"""How an execution ended: the outcome from the facts, and the result that the client gets."""

from __future__ import annotations

import posixpath
import time
from dataclasses import dataclass
from typing import Literal

import msgspec

from sandboxd.backends.interface import Enforcement
from sandboxd.platform.current import files
from sandboxd.policy.display_names import named
from sandboxd.policy.plan import Limits, Plan
from sandboxd.supervisor.budgets import ledger
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd.traffic import Traffic
from sandboxd.types import ExitReport, TreeUsage
from sandboxd_proto.denial import Denial
from sandboxd_proto.messages.execute import (
    Captured,
    ExecuteResult,
    HostUsage,
    LeftProcesses,
    Outcome,
    Tier,
    Usage,
)
from sandboxd_proto.messages.explanation import Explanation
from sandboxd_proto.messages.session import BudgetNotice

# Linux's numbers: only Linux sandboxes report them.
SIGXCPU, SIGXFSZ = 24, 25
_MOST_MASKED = 4

Ended = Literal["timeout", "cancelled", "output_limit", "budget", "file_size"]

# Killed between fork and exec, or with its sandbox: no process is left.
ENDED_EARLY = ExitReport(None, 9, usage=TreeUsage(0.0, 0), whole=True)
# SIGKILL had no effect (a process in uninterruptible sleep): the sandbox is torn down.
UNKNOWN_END = ExitReport(None, None, usage=TreeUsage(0.0, 0))


def outcome(report: ExitReport, limits: Limits, ended_by: Ended | None) -> Outcome:
    """`ended_by`: why the daemon ended the command, if it did."""
    if report.lost is not None:
        return "isolation_lost"
    if ended_by is not None:
        return ended_by
    if report.limit is not None:
        return report.limit
    if report.signal == SIGXCPU and limits.cpu_s is not None:
        return "cpu"
    if report.signal == SIGXFSZ and limits.file_bytes is not None:
        return "file_size"
    return "signaled" if report.signal is not None else "exited"


@dataclass(slots=True)
class Ending:
    """What is known when the command's tree is dead. `tiers`: how each field was enforced.
    `captured`: stdout and stderr."""

    report: ExitReport
    outcome: Outcome
    duration_ms: float
    tiers: dict[str, Tier]
    captured: tuple[Captured, Captured]
    denials: list[Denial]
    warnings: list[str]
    traffic: Traffic | None = None
    explanation: Explanation | None = None

    @property
    def exit_code(self) -> int | None:
        return self.report.exit_code if self.outcome == "exited" else None


def drop_data(captured: Captured) -> Captured:
    """Keep the number of bytes, and drop the data."""
    return Captured(bytes=captured.bytes, truncated=captured.bytes > 0)


def build_result(
    execution_id: str, request: ExecuteRequest, backend: str, ending: Ending, approval: str | None
) -> ExecuteResult:
    report = ending.report
    return ExecuteResult(
        execution_id=execution_id,
        outcome=ending.outcome,
        exit_code=ending.exit_code,
        signal=report.signal,
        duration_ms=round(ending.duration_ms, 3),
        usage=Usage(cpu_ms=round(report.usage.cpu_ms, 3), max_rss_bytes=report.usage.max_rss_bytes),
        stdout=ending.captured[0],
        stderr=ending.captured[1],
        denials=ending.denials,
        backend=backend,
        enforcement=ending.tiers,
        network_usage=host_usage(ending.traffic),
        explanation=ending.explanation,
        warnings=[
            *ending.warnings,
            *(ending.traffic.unreachable if ending.traffic is not None else ()),
            *(_secret_warning(path) for path in new_secrets(request.plan)),
            *(map(_masked_warning, masked_in_named(request.plan)) if ending.exit_code else ()),
        ],
        session=request.session.id if request.session is not None else None,
        approval=approval,
        grants=list(request.grants),
        budget=_used_up(request) if ending.outcome == "budget" else msgspec.UNSET,
        left_processes=_left(ending),
    )


def _left(ending: Ending) -> LeftProcesses | msgspec.UnsetType:
    """Not where the daemon ended all of it."""
    left = ending.report.left
    if left is None or ending.outcome not in ("exited", "signaled"):
        return msgspec.UNSET
    return left


def _used_up(request: ExecuteRequest) -> BudgetNotice | msgspec.UnsetType:
    session = request.session
    used = ledger.nearest_limit(session.account, time.monotonic()) if session is not None else None
    if used is None:
        return msgspec.UNSET
    return BudgetNotice(
        session=used.session, reason=used.reason, observed=round(used.observed, 6),
        limit=used.limit,
    )  # fmt: skip


def never_ran(
    execution_id: str, request: ExecuteRequest, backend: str | None, enforcement: Enforcement
) -> ExecuteResult:
    """The result of a request that was cancelled before it had a sandbox."""
    return ExecuteResult(
        execution_id=execution_id, outcome="cancelled", exit_code=None, signal=None,
        duration_ms=0.0, usage=Usage(cpu_ms=0.0, max_rss_bytes=0), stdout=Captured(),
        stderr=Captured(), denials=[], backend=backend, enforcement=dict(enforcement),
        session=request.session.id if request.session is not None else None,
    )  # fmt: skip


def host_usage(traffic: Traffic | None) -> list[HostUsage]:
    if traffic is None:
        return []
    return [
        HostUsage(
            host=entry.host, port=entry.port, connections=entry.connections, refused=entry.refused,
            sent_bytes=entry.sent_bytes, received_bytes=entry.received_bytes,
        )
        for entry in traffic.hosts
    ]  # fmt: skip


def new_secrets(plan: Plan) -> list[str]:
    """The secrets that exist now, and did not when the plan was made: no mask covers them."""
    return [path for path in plan.absent_secrets if files.lexists(path)]


def masked_in_named(plan: Plan) -> list[str]:
    """Secrets in folders that the caller named: a program that reads an empty file says nothing."""
    asked = {grant.path for grant in plan.sandbox.grants if grant.origin == "caller"}
    asked.discard(plan.workspace or "")
    masks = (mask.path for mask in plan.sandbox.masks if mask.path not in plan.denied)
    return [path for path in masks if posixpath.dirname(path) in asked][:_MOST_MASKED]


def _masked_warning(path: str) -> str:
    folder = posixpath.dirname(path)
    return (
        f"{named(path)} is empty inside, although {named(folder)} is shown: it can hold a secret, "
        "and is shown only where it is named itself"
    )


def _secret_warning(path: str) -> str:
    return (
        f"{named(path)} came into being while the command ran, which could read it: it is masked "
        "from the next command on"
    )
