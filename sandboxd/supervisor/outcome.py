"""How an execution ended, from the facts: the daemon's own first, then the kernel's."""

from __future__ import annotations

from typing import Literal

from sandboxd.policy.plan import Limits
from sandboxd.sandbox import ExitReport
from sandboxd_proto.messages.execute import Outcome

# Linux's numbers: only Linux sandboxes report them.
SIGXCPU, SIGXFSZ = 24, 25

Ended = Literal["timeout", "cancelled", "output_limit"]


def outcome(report: ExitReport, limits: Limits, ended_by: Ended | None) -> Outcome:
    """`ended_by`: what the daemon itself ended the command for."""
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
