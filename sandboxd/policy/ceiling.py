"""Compare a plan with the ceiling of the daemon's config, which no request may exceed."""

from __future__ import annotations

from sandboxd.config.config import Ceiling
from sandboxd.config.setting_words import setting_words
from sandboxd.policy.data import system_dirs
from sandboxd.policy.network.host_rules import parse_rule
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.within import within_any
from sandboxd.policy.plan import Grant, Limits, Plan
from sandboxd_proto.amounts import shown_bytes
from sandboxd_proto.errors import CeilingExceeded


def check(plan: Plan, ceiling: Ceiling) -> None:
    """CeilingExceeded with the line of the config that says so."""
    _check_preset(plan, ceiling)
    _check_network(plan, ceiling)
    _check_roots(plan, ceiling)
    _check_limits(plan, ceiling)
    _check_private(plan, ceiling)


def _check_preset(plan: Plan, ceiling: Ceiling) -> None:
    if plan.preset and ceiling.presets is not None and plan.preset not in ceiling.presets:
        raise _exceeded(f"the preset {plan.preset}", "preset", "presets", ceiling.presets)


def _check_network(plan: Plan, ceiling: Ceiling) -> None:
    kind = plan.sandbox.network.kind
    if ceiling.network is not None and kind not in ceiling.network:
        raise _exceeded(f"network {kind}", "network", "network", ceiling.network)
    permitted = [parse_rule(entry) for entry in ceiling.hosts or ()]
    for entry in plan.sandbox.network.hosts if ceiling.hosts is not None else ():
        if not any(rule.includes(parse_rule(entry)) for rule in permitted):
            raise _exceeded(f"the host {entry}", "network.hosts", "hosts", ceiling.hosts)


def _check_roots(plan: Plan, ceiling: Ceiling) -> None:
    if ceiling.roots is None:
        return
    roots = [recording_fs.realpath(recording_fs.expanduser(root)) for root in ceiling.roots]
    for grant in plan.sandbox.grants:
        if grant.origin == "caller" and not _covered(grant, roots):
            field = "fs_write_allow" if grant.access == "write" else "fs_read_allow"
            what = grant.path
            if grant.path == plan.workspace:
                field, what = "workspace", f"the workspace {grant.path}"
            raise _exceeded(what, field, "roots", ceiling.roots)


def _covered(grant: Grant, roots: list[str]) -> bool:
    allowed = [*roots, *system_dirs.READABLE] if grant.access == "read" else roots
    return within_any(grant.path, allowed)


def _check_limits(plan: Plan, ceiling: Ceiling) -> None:
    if ceiling.max_timeout_secs is not None and (
        plan.timeout_s is None or plan.timeout_s > ceiling.max_timeout_secs
    ):
        asked = "no timeout" if plan.timeout_s is None else f"a timeout of {plan.timeout_s:g} s"
        raise _exceeded(asked, "timeout", "max_timeout_secs", ceiling.max_timeout_secs)
    for field, value in _limit_fields(plan.limits):
        highest = getattr(ceiling, field)
        if highest is not None and value is not None and value > highest:
            shown = shown_bytes(value) if field.endswith("_bytes") else f"{value:g}"
            raise _exceeded(f"{field} = {shown}", field, field, highest)


def _check_private(plan: Plan, ceiling: Ceiling) -> None:
    """/tmp and /dev/shm are in memory."""
    highest = ceiling.max_memory_bytes
    spec = plan.sandbox
    for field, value in (("tmp_bytes", spec.tmp_bytes), ("shm_bytes", spec.shm_bytes)):
        if field in plan.asked and highest is not None and value > highest:
            raise _exceeded(f"{field} = {shown_bytes(value)}", field, "max_memory_bytes", highest)


def _limit_fields(limits: Limits) -> list[tuple[str, float | None]]:
    return [
        ("max_memory_bytes", limits.memory_bytes),
        ("max_cpu_secs", limits.cpu_s),
        ("max_processes", limits.processes),
        ("max_file_bytes", limits.file_bytes),
        ("max_output_bytes", limits.output_bytes),
    ]


def lower_limits(limits: Limits, ceiling: Ceiling) -> Limits:
    """A limit that the request leaves out gets the ceiling's value."""
    return Limits(
        memory_bytes=limits.memory_bytes or ceiling.max_memory_bytes,
        cpu_s=limits.cpu_s or ceiling.max_cpu_secs,
        processes=limits.processes or ceiling.max_processes,
        default_processes=limits.default_processes,
        file_bytes=limits.file_bytes or ceiling.max_file_bytes,
        output_bytes=limits.output_bytes or ceiling.max_output_bytes,
        cpus=limits.cpus,
    )


def _exceeded(what: str, field: str, key: str, value: object) -> CeilingExceeded:
    line, says, change = setting_words(f"ceiling.{key}", value)
    return CeilingExceeded(
        f"{what} is beyond what this daemon's config permits",
        field=field,
        remedy=f"{says}. Ask for less, or {change}",
        config_line=line,
    )
