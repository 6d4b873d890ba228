"""How sandbox-exec enforces each field of a manifest."""

from __future__ import annotations

from sandboxd.policy.plan import Plan
from sandboxd_proto.errors import PolicyNotSupported
from sandboxd_proto.messages.execute import Tier

_BY_THE_PROFILE = ("fs_read_allow", "fs_write_allow", "fs_deny", "base", "network")
_BY_THE_DAEMON = ("env", "timeout", "max_file_bytes", "max_output_bytes")
# Summed over the census a few times a second.
_WATCHED = ("max_memory_bytes", "max_cpu_secs", "max_processes")


def sandbox_exec_tiers(plan: Plan, *, isolates: bool) -> dict[str, Tier]:
    """There are no filters of system calls on macOS, and no images."""
    if plan.limits.cpus is not None:
        raise PolicyNotSupported(
            "sandbox-exec cannot limit a command to a number of CPUs", field="max_cpus",
            remedy="leave max_cpus out (max_cpu_secs limits the total)",
        )  # fmt: skip
    tiers: dict[str, Tier] = dict.fromkeys(plan.asked, "none")
    tiers.update(dict.fromkeys(_BY_THE_PROFILE, "enforced" if isolates else "none"))
    tiers.update(dict.fromkeys(_BY_THE_DAEMON, "enforced"))
    tiers.update(dict.fromkeys(_WATCHED, "best_effort"))
    return {field: tiers[field] for field in sorted(plan.asked)}
