"""What the Linux backends share for the life of the daemon: the init, folders, host facts."""

from __future__ import annotations

import os

import msgspec

from sandboxd.egress.address_book import exact_addresses
from sandboxd.egress.service import EgressService
from sandboxd.linux.cgroup import cgroups
from sandboxd.linux.cgroup.cgroups import Cgroups
from sandboxd.linux.cgroup.tree import NotDelegated
from sandboxd.linux.init_client import binary
from sandboxd.linux.openat import is_unchanged
from sandboxd.linux.rootfs.curated_etc import CuratedEtc
from sandboxd.linux.rootfs.state import StateFolder
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.policy.mounts.mount_plan import Host
from sandboxd.policy.network.host_rules import parse_rule
from sandboxd.policy.plan import NetworkRule, SandboxSpec
from sandboxd.types import Command


class LinuxSupport(msgspec.Struct, frozen=True):
    init: int
    state: StateFolder
    etc: CuratedEtc
    host: Host
    egress: EgressService
    own_code: tuple[str, ...] = ()  # canonical paths of the daemon's code and programs
    cgroups: Cgroups | None = None
    why_no_cgroups: str = ""

    @property
    def limits_layer(self) -> str:
        """How a tree's memory, CPU time and processes are limited, for people."""
        if self.cgroups is not None:
            if self.cgroups.v2:
                return "limits by cgroup v2"
            return (
                "processes limited by cgroup v1, memory and CPU time by counting "
                f"({self.cgroups.left_out})"
            )
        return f"limits by counting processes ({self.why_no_cgroups or 'no delegated cgroup'})"

    def names(self, rule: NetworkRule) -> str:
        """The folder with the files for /etc of a sandbox in which only named hosts exist."""
        if rule.kind != "allow_hosts":
            return ""
        return self.etc.names(exact_addresses([parse_rule(entry) for entry in rule.hosts]))


def linux_support(
    state: StateFolder, host: Host, egress: EgressService, own_code: tuple[str, ...]
) -> LinuxSupport:
    delegated = cgroups.take()
    return LinuxSupport(
        binary.load(), state, CuratedEtc(state), host, egress, own_code,
        cgroups=None if isinstance(delegated, NotDelegated) else delegated,
        why_no_cgroups=delegated.reason if isinstance(delegated, NotDelegated) else "",
    )  # fmt: skip


def filter_for(spec: SandboxSpec, command: Command) -> FilterSpec:
    """The seccomp filter of a command in a sandbox that has namespaces."""
    return FilterSpec(
        level=command.syscall_policy, restrict_families=spec.network.kind != "inherit"
    )


def paths_hold(spec: SandboxSpec) -> bool:
    """Whether granted paths are the files that were planned, and masked ones still exist."""
    return all(is_unchanged(grant.path, grant.identity) for grant in spec.grants) and all(
        os.path.lexists(mask.path) for mask in spec.masks
    )


def root_warnings() -> list[str]:
    if os.getuid() != 0:
        return []
    return [
        "sandboxd runs as root: a command runs as the owner of its workspace, in workspaces of "
        "root as root (without capabilities)"
    ]
