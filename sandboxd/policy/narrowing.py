"""A command in a sandbox that exists: the same plan with its own environment and tighter limits."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from sandboxd.policy import limits
from sandboxd.policy.environment import environment, overlay
from sandboxd.policy.plan import Limits, Plan
from sandboxd_proto.errors import InvalidParams
from sandboxd_proto.manifest import FIELDS, Manifest

# What one command may have of its own; all else was decided when the sandbox was created.
OWN_FIELDS = (
    "env", "timeout", "max_output_bytes", "max_cpu_secs", "max_memory_bytes", "max_processes",
    "max_file_bytes",
)  # fmt: skip


def narrow(plan: Plan, manifest: Manifest) -> Plan:
    """InvalidParams names a field that belongs to the sandbox, or a limit above the sandbox's own:
    limits only become tighter."""
    for name in FIELDS:
        if getattr(manifest, name) is not None and name not in OWN_FIELDS:
            raise InvalidParams(
                f"a command in an existing sandbox has no {name} of its own",
                field=f"manifest.{name}", remedy="give it to sandbox/create",
            )  # fmt: skip
    own = limits.limits(manifest)
    _check_wider(plan.limits, own)
    timeout = plan.timeout_s
    if manifest.timeout is not None:
        timeout = _tighter(limits.timeout(manifest, 0.0, None), plan.timeout_s)
    asked = {name for name in OWN_FIELDS if getattr(manifest, name) is not None}
    return replace(
        plan,
        env=overlay(plan.env, environment(manifest.env)),
        timeout_s=timeout,
        limits=_tighter_limits(plan.limits, own),
        asked=plan.asked | asked,
    )


def _check_wider(before: Limits, own: Limits) -> None:
    for name, unit, asked, highest in (
        ("max_memory_bytes", " bytes", own.memory_bytes, before.memory_bytes),
        ("max_cpu_secs", " s", own.cpu_s, before.cpu_s),
        ("max_processes", "", own.processes, before.process_bound),
        ("max_file_bytes", " bytes", own.file_bytes, before.file_bytes),
        ("max_output_bytes", " bytes", own.output_bytes, before.output_bytes),
    ):
        if asked is not None and highest is not None and asked > highest:
            raise InvalidParams(
                f"{name} is {asked:.15g}{unit}, and the sandbox itself has {highest:.15g}{unit}",
                field=name, remedy="leave it out, or give it to sandbox/create",
            )  # fmt: skip


def _tighter_limits(before: Limits, own: Limits) -> Limits:
    return replace(
        before,
        memory_bytes=_tighter(own.memory_bytes, before.memory_bytes),
        cpu_s=_tighter(own.cpu_s, before.cpu_s),
        processes=_tighter(own.processes, before.processes),
        file_bytes=_tighter(own.file_bytes, before.file_bytes),
        output_bytes=_tighter(own.output_bytes, before.output_bytes),
    )


N = TypeVar("N", int, float)


def _tighter(one: N | None, other: N | None) -> N | None:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None
