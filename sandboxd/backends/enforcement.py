"""How each field of a manifest is enforced on Linux: the values of `enforcement`, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxd.policy.plan import Plan
from sandboxd_proto.errors import PolicyNotSupported
from sandboxd_proto.messages.execute import Tier

if TYPE_CHECKING:
    from sandboxd.linux.cgroup.cgroups import Cgroups


# Where there are namespaces, and limits by the kernel.
ENFORCED: dict[str, Tier] = dict.fromkeys(
    ("fs_read_allow", "fs_write_allow", "fs_deny", "base", "network", "syscall_policy", "timeout",
     "env", "max_file_bytes", "max_output_bytes", "tmp_bytes", "shm_bytes"),
    "enforced",
)  # fmt: skip


# Why Landlock alone cannot hold them.
_PRIVATE = {
    "tmp_bytes": "temporary files: they are on the host's disk",
    "shm_bytes": "/dev/shm: its commands have none",
}


def linux_tiers(
    plan: Plan, cgroups: Cgroups | None, *, counts_processes: bool = False
) -> dict[str, Tier]:
    """For backends below our init with namespaces. Limits without a cgroup are best effort.

    `counts_processes`: the kernel counts (RLIMIT_NPROC) what is in the sandbox and nothing else.
    """
    if plan.limits.cpus is not None:
        raise PolicyNotSupported(
            "only containers can be limited to a number of CPUs", field="max_cpus",
            remedy="leave max_cpus out (max_cpu_secs limits the total), or use the docker backend",
        )  # fmt: skip
    tiers: dict[str, Tier] = {
        **ENFORCED,
        # The tree's memory and CPU time are summed a few times a second: it can overshoot.
        "max_memory_bytes": "best_effort",
        "max_cpu_secs": "best_effort",
        "max_processes": "enforced" if counts_processes else "best_effort",
        # A /tmp that the session's commands share is summed, not mounted with a size.
        "tmp_bytes": "enforced" if plan.sandbox.shared_tmp is None else "best_effort",
        # Containers only; nothing here has an image.
        "image": "none",
    }
    tiers.update(limit_tiers(cgroups))
    return {field: tier for field, tier in tiers.items() if field in plan.asked}


def limit_tiers(cgroups: Cgroups | None) -> dict[str, Tier]:
    """The limits of a tree, as they will be held if its cgroup can be made."""
    if cgroups is None:
        return {}
    tiers: dict[str, Tier] = {}
    if cgroups.v2:
        tiers["max_cpu_secs"] = "enforced"
    if "memory" in cgroups.controllers:
        tiers["max_memory_bytes"] = "enforced"
    if "pids" in cgroups.controllers:
        tiers["max_processes"] = "enforced"
    return tiers


def landlock_tiers(plan: Plan, cgroups: Cgroups | None) -> dict[str, Tier]:
    """Without namespaces: names and metadata of files show, and chmod, chown, utime and xattr on
    files that can be reached are not covered; the base is the host's, as far as it is granted."""
    loose = {"fs_read_allow", "fs_write_allow", "fs_deny", "base"}
    tiers = linux_tiers(plan, cgroups)
    private = {"tmp_bytes", "shm_bytes"} if plan.sandbox.shared_tmp is None else {"shm_bytes"}
    for field in sorted(private & plan.asked):
        raise PolicyNotSupported(
            f"the landlock backend cannot limit {_PRIVATE[field]}", field=field,
            remedy=f"leave {field} out, or use a host where bubblewrap works",
        )  # fmt: skip
    return {field: "best_effort" if field in loose else tier for field, tier in tiers.items()}


def no_tiers(plan: Plan, cgroups: Cgroups | None) -> dict[str, Tier]:
    """Without a sandbox only what the init itself does holds."""
    held = {"env", "timeout", "max_file_bytes", "max_output_bytes", *limit_tiers(cgroups)}
    watched = {"max_memory_bytes", "max_cpu_secs", "max_processes"}
    return {
        field: "enforced" if field in held else "best_effort" if field in watched else "none"
        for field in sorted(plan.asked)
    }
