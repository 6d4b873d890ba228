"""What the Linux backends share for the life of the daemon: the init, folders, host facts."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxd.linux.curated_etc import CuratedEtc
from sandboxd.linux.state import StateFolder
from sandboxd.policy.layout import Host


@dataclass(frozen=True, slots=True)
class LinuxSupport:
    init: int
    state: StateFolder
    etc: CuratedEtc
    host: Host
