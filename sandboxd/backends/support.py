"""What the Linux backends share for the life of the daemon: the init, folders, host facts."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxd.egress.book import exact_addresses
from sandboxd.egress.service import EgressService
from sandboxd.linux.cgroups import Cgroups
from sandboxd.linux.curated_etc import CuratedEtc
from sandboxd.linux.state import StateFolder
from sandboxd.policy.hosts import parse_rule
from sandboxd.policy.layout import Host
from sandboxd.policy.plan import NetworkRule


@dataclass(frozen=True, slots=True)
class LinuxSupport:
    init: int
    state: StateFolder
    etc: CuratedEtc
    host: Host
    egress: EgressService
    cgroups: Cgroups | None = None
    why_no_cgroups: str = ""

    @property
    def limits_layer(self) -> str:
        """How a tree's memory, CPU time and processes are limited, for people."""
        if self.cgroups is not None:
            return "limits by cgroup v2"
        return f"limits by counting processes ({self.why_no_cgroups or 'no delegated cgroup'})"

    def names(self, rule: NetworkRule) -> str:
        """The folder with the files for /etc of a sandbox in which only named hosts exist."""
        if rule.kind != "allow_hosts":
            return ""
        return self.etc.names(exact_addresses([parse_rule(entry) for entry in rule.hosts]))
