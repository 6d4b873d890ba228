"""What planning starts from: one request, and the machine that the daemon runs on."""

from __future__ import annotations

import posixpath

import msgspec

from sandboxd.config.config import Config
from sandboxd.policy.mounts.mount_plan import Host
from sandboxd.policy.mounts.own_paths import OwnPaths
from sandboxd.policy.paths import recording_fs
from sandboxd_proto.manifest import Manifest


class PolicyRequest(msgspec.Struct, frozen=True):
    """What one request says, before anything is checked."""

    manifest: Manifest = msgspec.field(default_factory=Manifest)
    preset: str | None = None
    workspace: str | None = None
    cwd: str | None = None
    backend: str | None = None
    manifest_given: bool = False
    dry: bool = False  # for a look at the plan: nothing is made on disk


class Machine(msgspec.Struct, frozen=True):
    """Who the daemon is and where it runs. Made once. `limit_sandboxes`: the backends that make a
    sandbox with its limits; elsewhere each command has its own."""

    config: Config
    host: Host
    own: OwnPaths
    home: str
    uid: int
    caches_root: str
    forwards_folder: str = "/nonexistent"
    limit_sandboxes: frozenset[str] = frozenset()
    variable_home: str = ""  # HOME of its environment; `home` is of the user database

    @property
    def own_homes(self) -> tuple[str, ...]:
        """Of the daemon's user: programs follow the variable, the user database may differ."""
        named = self.variable_home
        also = posixpath.isabs(named) and named != "/" and recording_fs.isdir(named)
        return (self.home, named) if also else (self.home,)
