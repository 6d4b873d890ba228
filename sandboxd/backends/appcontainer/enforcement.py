"""How each field of a manifest is enforced in an AppContainer. Pure."""

from __future__ import annotations

from sandboxd.policy.plan import Plan
from sandboxd_proto.errors import PolicyNotSupported
from sandboxd_proto.messages.execute import Tier

_TIERS: dict[str, Tier] = {
    "fs_read_allow": "enforced",
    "fs_write_allow": "enforced",
    "fs_deny": "enforced",
    "base": "none",
    "network": "enforced",
    "syscall_policy": "none",
    "timeout": "enforced",
    "env": "enforced",
    "max_memory_bytes": "enforced",
    "max_cpu_secs": "enforced",
    "max_processes": "enforced",
    "max_output_bytes": "enforced",
    "tmp_bytes": "none",
    "shm_bytes": "none",
    "image": "none",
}


def tiers(plan: Plan) -> dict[str, Tier]:
    """PolicyNotSupported where something asked for cannot be held."""
    _refuse(plan)
    return {field: tier for field, tier in _TIERS.items() if field in plan.asked}


def _refuse(plan: Plan) -> None:
    if plan.sandbox.network.kind == "allow_hosts":
        raise PolicyNotSupported(
            "an AppContainer cannot reach a local proxy, and Windows' own filter needs an "
            "administrator", field="network",
            remedy='use "deny" or "inherit"',
        )  # fmt: skip
    if plan.limits.file_bytes is not None:
        raise PolicyNotSupported(
            "Windows does not limit the size of a file", field="max_file_bytes",
            remedy="leave max_file_bytes out",
        )  # fmt: skip
    if plan.limits.cpus is not None:
        raise PolicyNotSupported(
            "only containers can be limited to a number of CPUs", field="max_cpus",
            remedy="leave max_cpus out (max_cpu_secs limits the total)",
        )  # fmt: skip
