"""What the macOS backend needs for the life of the daemon."""

from __future__ import annotations

import msgspec

from sandboxd.egress.service import EgressService
from sandboxd.macos.system import MacSystem, mac_system
from sandboxd.policy.mounts.mount_plan import Host


class MacSupport(msgspec.Struct, frozen=True):
    """`state_folder`: the daemon's own, where no command may write. `homes`: of all people."""

    system: MacSystem
    egress: EgressService
    state_folder: str
    homes: tuple[str, ...] = ()
    own_home: str = ""


def mac_support(state_folder: str, host: Host, egress: EgressService) -> MacSupport:
    return MacSupport(mac_system(), egress, state_folder, host.homes, host.own_home)
