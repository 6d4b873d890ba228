"""Limits: what the daemon and the kernel know, and what programs print when they run into one."""

from __future__ import annotations

import signal
from typing import Literal

from sandboxd.denials import remedies
from sandboxd.denials.facts import Facts, LimitHit, Setting
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
# Windows has none of these signals.
_SIGXCPU = getattr(signal, "SIGXCPU", 24)
_SIGXFSZ = getattr(signal, "SIGXFSZ", 25)
_SIGKILL = getattr(signal, "SIGKILL", 9)
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
        "processes": limits.processes,
        "file_size": limits.file_bytes,
        "output": limits.output_bytes,
    }[limit]


def known(setting: Setting, facts: Facts) -> list[Denial]:
    """What the daemon saw itself, and signals that only a limit of the plan explains."""
    hit = facts.limit_hit or _OUTCOMES.get(facts.outcome)
    if hit is not None:
        return [denial(setting, hit, "kernel", "high")]
    if facts.signal == _SIGXCPU and value(setting, "cpu") is not None:
        return [denial(setting, "cpu", "kernel", "high")]
    if facts.signal == _SIGXFSZ and value(setting, "file_size") is not None:
        return [denial(setting, "file_size", "kernel", "high")]
    if facts.signal == _SIGKILL and not (facts.timed_out or facts.cancelled):
        return _hard_cpu_limit(setting, facts)
    return []


def _hard_cpu_limit(setting: Setting, facts: Facts) -> list[Denial]:
    """A program that ignores SIGXCPU is killed a little later, at the hard limit."""
    limit = value(setting, "cpu")
    if limit is None:
        return []
    if facts.cpu_s is None:
        return [denial(setting, "cpu", "kernel", "medium")]
    return [denial(setting, "cpu", "kernel", "high")] if facts.cpu_s >= 0.9 * limit else []


def denial(
    setting: Setting, limit: LimitHit, evidence: Evidence, confidence: Confidence
) -> Denial:
    operation, text = _WHAT[limit]
    # The wire has no kind of its own for output: it is data written past a size limit.
    kind: DenialKind = "file_size" if limit == "output" else limit
    return Denial(
        kind=kind, operation=operation, target=None, layer="limit", evidence=evidence,
        confidence=confidence, message=text, remedy=_remedy(setting, limit),
    )  # fmt: skip


def _remedy(setting: Setting, limit: LimitHit) -> Remedy | None:
    return remedies.twice(_FIELDS[limit], value(setting, limit))
