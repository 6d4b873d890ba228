"""Limits: reports of the daemon and the kernel, and the text of programs that reach one."""

from __future__ import annotations

from typing import Literal

from sandboxd.denials import remedies
from sandboxd.denials.context import LimitHit, RunEvidence, Setting
from sandboxd.denials.remedies import Remedy
from sandboxd_proto.denial import Confidence, Denial, DenialKind, Evidence

TextLimit = Literal["memory", "processes", "cpu", "file_size"]
TEXT_LIMITS: tuple[TextLimit, ...] = ("memory", "processes", "cpu", "file_size")

_FIELDS: dict[LimitHit, str] = {
    "memory": "max_memory_bytes",
    "cpu": "max_cpu_secs",
    "processes": "max_processes",
    "file_size": "max_file_bytes",
    "output": "max_output_bytes",
}
_WHAT: dict[LimitHit, tuple[str, str]] = {
    "memory": ("allocate", "the command needed more memory than max_memory_bytes allows"),
    "cpu": ("run", "the command used more processor time than max_cpu_secs allows"),
    "processes": ("fork", "the command needed more processes than max_processes allows"),
    "file_size": ("write", "a file grew larger than max_file_bytes allows"),
    "output": ("write", "the command printed more than max_output_bytes allows"),
}
_SESSION_TMP = Denial(
    kind="file_size", operation="write", target="/tmp", layer="limit", evidence="kernel",
    confidence="high", remedy=None,
    message="the session's /tmp is full: remove files there, or raise [sessions] tmp_bytes in the "
    "daemon's config",
)  # fmt: skip
# By number: Windows has none of these names.
_SIGXCPU, _SIGXFSZ, _SIGKILL = 24, 25, 9
_OUTCOMES: dict[str, LimitHit] = {
    "memory": "memory",
    "cpu": "cpu",
    "processes": "processes",
    "file_size": "file_size",
    "output_limit": "output",
}


def value(setting: Setting, limit: LimitHit) -> float | None:
    limits = setting.plan.limits
    return {
        "memory": limits.memory_bytes,
        "cpu": limits.cpu_s,
        "processes": limits.process_bound,
        "file_size": limits.file_bytes,
        "output": limits.output_bytes,
    }[limit]


def reported_denials(setting: Setting, facts: RunEvidence) -> list[Denial]:
    """Reports of the daemon, and signals that only a limit of the plan explains."""
    hit = facts.limit_hit or _OUTCOMES.get(facts.outcome)
    if facts.outcome == "file_size" and facts.signal != _SIGXFSZ:
        return [_SESSION_TMP]  # the daemon ended it (supervisor/sessions/lifecycle.py)
    if hit is not None:
        return [denial(setting, hit, "kernel", "high")]
    if facts.signal == _SIGXCPU and value(setting, "cpu") is not None:
        return [denial(setting, "cpu", "kernel", "high")]
    if facts.signal == _SIGXFSZ and value(setting, "file_size") is not None:
        return [denial(setting, "file_size", "kernel", "high")]
    if facts.signal == _SIGKILL and not (facts.timed_out or facts.cancelled):
        return _hard_cpu_limit(setting, facts)
    return []


def no_space(setting: Setting, facts: RunEvidence) -> list[Denial]:
    """A file system that is the sandbox's own lacked space. It is uncertain whether that matters to
    a command that succeeded, and whether one wrote there that found it full."""
    spec = setting.plan.sandbox
    found = []
    for path in (*facts.full, *facts.full_before):
        field, size = ("tmp_bytes", spec.tmp_bytes)
        if path == "/dev/shm":
            field, size = ("shm_bytes", spec.shm_bytes)
        found.append(
            Denial(
                kind="file_size", operation="write", target=path, layer="limit",
                evidence="kernel", confidence=_sureness(path, facts),
                remedy=remedies.raise_limit(setting, field, size),
                message=f"the sandbox's private {path} is full: {field} allows {size} bytes",
            )
        )  # fmt: skip
    return found


def _sureness(path: str, facts: RunEvidence) -> Confidence:
    return "high" if facts.failed and path in facts.full else "medium"


def _hard_cpu_limit(setting: Setting, facts: RunEvidence) -> list[Denial]:
    """A program that ignores SIGXCPU is killed a little later, at the hard limit."""
    limit = value(setting, "cpu")
    if limit is None:
        return []
    if facts.cpu_s is None:
        return [denial(setting, "cpu", "kernel", "medium")]
    return [denial(setting, "cpu", "kernel", "high")] if facts.cpu_s >= 0.9 * limit else []


def denial(setting: Setting, limit: LimitHit, evidence: Evidence, confidence: Confidence) -> Denial:
    operation, text = _WHAT[limit]
    # The wire has no kind for output: it counts as data written past a size limit.
    kind: DenialKind = "file_size" if limit == "output" else limit
    return Denial(
        kind=kind, operation=operation, target=None, layer="limit", evidence=evidence,
        confidence=confidence, message=text, remedy=_remedy(setting, limit),
    )  # fmt: skip


def _remedy(setting: Setting, limit: LimitHit) -> Remedy | None:
    return remedies.raise_limit(setting, _FIELDS[limit], value(setting, limit))
