"""How firmly each field holds in a container, with our init in it and without."""

from __future__ import annotations

from typing import Literal

from sandboxd.policy.plan import Plan
from sandboxd_proto.errors import PolicyNotSupported
from sandboxd_proto.messages.execute import Tier

Way = Literal["init", "attach"]
MEMORY_MIN = 6 << 20  # the engine refuses less

_WITH_INIT: dict[str, Tier] = {
    "fs_read_allow": "enforced",
    "fs_write_allow": "enforced",
    "fs_deny": "enforced",
    "base": "enforced",
    "network": "enforced",
    "syscall_policy": "enforced",
    "timeout": "enforced",
    "env": "enforced",
    "image": "enforced",
    "max_memory_bytes": "enforced",
    "max_cpu_secs": "enforced",
    "max_cpus": "enforced",
    "max_processes": "enforced",
    "max_file_bytes": "enforced",
    "max_output_bytes": "enforced",
}
_ATTACHED: dict[str, Tier] = {
    **_WITH_INIT,
    # Summed over the tree by the init: it can overshoot.
    "max_cpu_secs": "best_effort",
}


def container_tiers(plan: Plan, way: Way) -> dict[str, Tier]:
    """PolicyNotSupported names everything that cannot be held this way."""
    refused = _refused(plan, way)
    if refused:
        fields = ", ".join(field for field, _ in refused)
        raise PolicyNotSupported(
            f"the docker backend cannot enforce {fields}: "
            + "; ".join(reason for _, reason in refused),
            field=refused[0][0],
            remedy="leave it out, or use the bubblewrap backend",
        )
    tiers = _WITH_INIT if way == "init" else _ATTACHED
    return {field: tier for field, tier in tiers.items() if field in plan.asked}


def _refused(plan: Plan, way: Way) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if plan.sandbox.network.kind == "allow_hosts":
        found.append(("network", "a container's network cannot be limited to named hosts yet"))
    memory = plan.limits.memory_bytes
    if memory is not None and memory < MEMORY_MIN:
        found.append(("max_memory_bytes", f"an engine's least is {MEMORY_MIN} bytes"))
    if way == "attach" and "base" in plan.asked and plan.sandbox.base == "host":
        found.append(("base", "this engine does not have this machine's files"))
    return found
