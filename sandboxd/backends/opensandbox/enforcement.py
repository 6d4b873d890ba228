"""How firmly each field holds in a sandbox of an OpenSandbox server, and what is refused there."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sandboxd.backends.opensandbox.copies.scope import copied_grants, is_of_image
from sandboxd.backends.opensandbox.spec import is_plain_host
from sandboxd.policy.paths.within import within
from sandboxd.policy.plan import Plan, SandboxSpec
from sandboxd_proto.errors import PolicyNotSupported
from sandboxd_proto.messages.execute import Tier

MEMORY_MIN = 6 << 20  # a container engine refuses less

_TIERS: dict[str, Tier] = {
    # The server's runtime mounts or keeps the copies; it is not on our side of the wire.
    "fs_read_allow": "best_effort",
    "fs_write_allow": "best_effort",
    "fs_deny": "enforced",
    # The image's own system can be written to, in its sandbox.
    "base": "best_effort",
    # Whether addresses are filtered besides names is the server's own setting ([egress] mode).
    "network": "best_effort",
    "syscall_policy": "none",
    "timeout": "enforced",
    # The image's own variables are there besides.
    "env": "best_effort",
    "image": "enforced",
    "max_memory_bytes": "enforced",
    "max_cpus": "enforced",
    "max_output_bytes": "enforced",
    "max_processes": "none",
    "tmp_bytes": "none",
    "shm_bytes": "none",
}


class UnsupportedField(msgspec.Struct, frozen=True):
    field: str
    reason: str
    remedy: str


# What our init holds. Not firmly: a command can have the sandbox's execd start others beside it.
_OF_THE_INIT: dict[str, Tier] = {
    "syscall_policy": "best_effort",
    "max_processes": "best_effort",
    "max_cpu_secs": "best_effort",
    "max_file_bytes": "best_effort",
    "env": "enforced",
}


def tiers(plan: Plan, *, host_volumes: bool, with_init: bool) -> dict[str, Tier]:
    """PolicyNotSupported names everything that cannot be held."""
    unsupported = list(_unsupported(plan, host_volumes=host_volumes, with_init=with_init))
    if unsupported:
        raise unsupported_error(*unsupported)
    held = _TIERS | _OF_THE_INIT if with_init else _TIERS
    return {field: tier for field, tier in held.items() if field in plan.asked}


def unsupported_error(*unsupported: UnsupportedField) -> PolicyNotSupported:
    fields = ", ".join(dict.fromkeys(one.field for one in unsupported))
    return PolicyNotSupported(
        f"the opensandbox backend cannot enforce {fields}: "
        + "; ".join(one.reason for one in unsupported),
        field=unsupported[0].field,
        remedy="; ".join(dict.fromkeys(one.remedy for one in unsupported)),
    )


def _unsupported(plan: Plan, *, host_volumes: bool, with_init: bool) -> Iterator[UnsupportedField]:
    spec, limits = plan.sandbox, plan.limits
    if "base" in plan.asked and spec.base == "host":
        yield UnsupportedField(
            "base", "the server does not have this machine's files",
            "leave it out: the image is the base",
        )  # fmt: skip
    yield from _volumes(spec) if host_volumes else _copies(spec)
    if spec.network.kind == "allow_hosts":
        for host in spec.network.hosts:
            if not is_plain_host(host):
                yield UnsupportedField(
                    "network", f"a network policy of the server has no {host!r}",
                    "name hosts without port, or *.domain",
                )  # fmt: skip
    for field, value in (
        ("max_processes", limits.processes),
        ("max_cpu_secs", limits.cpu_s),
        ("max_file_bytes", limits.file_bytes),
    ):
        if value is not None and not with_init:
            yield UnsupportedField(
                field, f"the server has no {field} for a sandbox",
                f"leave {field} out, or use a backend of this machine",
            )  # fmt: skip
    if limits.memory_bytes is not None and limits.memory_bytes < MEMORY_MIN:
        least = f"a container's least is {MEMORY_MIN} bytes"
        yield UnsupportedField("max_memory_bytes", least, f"ask for {MEMORY_MIN} or more")


def _copies(spec: SandboxSpec) -> Iterator[UnsupportedField]:
    for grant in copied_grants(spec):
        if is_of_image(grant.path):
            yield UnsupportedField(
                "fs_write_allow" if grant.access == "write" else "fs_read_allow",
                f"{grant.path} is the image's own in the sandbox, and is not copied there",
                "leave it out, or grant a folder deeper in it",
            )  # fmt: skip


def _volumes(spec: SandboxSpec) -> Iterator[UnsupportedField]:
    """The server makes a folder of whatever it mounts, so a file cannot be granted or protected."""
    for grant in spec.grants:
        if not grant.identity.is_dir:
            yield UnsupportedField(
                "fs_write_allow" if grant.access == "write" else "fs_read_allow",
                f"{grant.path} is a file, and volumes are folders", "grant its folder",
            )  # fmt: skip
    roots = [grant.path for grant in spec.grants]
    for mask in spec.masks:
        if any(within(mask.path, root) for root in roots):
            yield UnsupportedField(
                "fs_deny", f"{mask.path} cannot be hidden in a volume",
                "grant folders that do not contain it",
            )  # fmt: skip
    for one in spec.protected:
        if one.present and not one.is_dir:
            yield UnsupportedField(
                "fs_write_allow", f"the file {one.path} cannot be protected in a volume",
                "grant it read-only, or use a backend of this machine",
            )  # fmt: skip
    for link in spec.links:
        yield UnsupportedField(
            "fs_read_allow", f"{link.path} is a symlink, which the sandbox does not have",
            f"name {link.target}",
        )  # fmt: skip
