"""The resolved plan: absolute canonical paths, limits, network, environment.

A plan has two parts. `SandboxSpec` is what a sandbox is built from; it is hashable, and two
commands with equal specs may use sandboxes of one pool. The rest belongs to one command.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from sandboxd.policy.protected.nested_git import Repositories
from sandboxd_proto.manifest import Base, NetworkKind, SyscallPolicy

# Sizes of the private /tmp and /dev/shm, which are in memory.
TMP_BYTES = 1 << 30
SHM_BYTES = 256 << 20
Access = Literal["read", "write"]
# "pin": a writable folder bound onto itself only so that it cannot be renamed (see rename_pins.py).
Origin = Literal["caller", "preset", "toolchain", "cache", "pin"]
# What may become of a protected path that is not mounted read-only:
# "absent": it must not be created (or, if it is a symlink, be replaced);
# "new_repository": a git dir may be made there if nothing in it runs code;
# "git_dir": a git dir's folder. Only names of git's daily work may come, and what they contain is
#   judged; "shared_git_dir": one that linked worktrees share with the main checkout;
#   "bare_git_dir": one that is a workspace's top folder, so that other names in it are no matter;
# "git_info": the folder `info` of a git dir;
# "top": a folder that must not become a git dir itself.
Rule = Literal[
    "absent", "new_repository", "git_dir", "shared_git_dir", "bare_git_dir", "git_info", "top"
]
GIT_DIR_RULES = frozenset(("git_dir", "shared_git_dir", "bare_git_dir"))
FOLDER_RULES = frozenset((*GIT_DIR_RULES, "git_info", "top"))


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """The inode of a path when it was checked; another one at the bind means a swap."""

    device: int
    inode: int
    is_dir: bool

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        import stat

        return cls(status.st_dev, status.st_ino, stat.S_ISDIR(status.st_mode))


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """A host path that is visible inside at the same place."""

    path: str
    access: Access
    identity: Identity
    origin: Origin = "caller"
    by_name: bool = True  # False: through a symlink that a command could have made


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """A symlink to recreate inside, so that the caller's own spelling of a path keeps working."""

    path: str
    target: str


@dataclass(frozen=True, slots=True, order=True)
class Mask:
    """A host path that reads as an empty file or folder inside."""

    path: str
    is_dir: bool


@dataclass(frozen=True, slots=True, order=True)
class Protected:
    """A path below the writable `root` that a command must not change.

    `present`: it is there and is mounted read-only. Otherwise it is watched and judged by `rule`.
    With one of FOLDER_RULES it is the folder whose entries are watched.
    """

    path: str
    root: str
    present: bool
    is_dir: bool = False
    rule: Rule = "absent"


@dataclass(frozen=True, slots=True)
class NetworkRule:
    kind: NetworkKind
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunAs:
    """The identity that a daemon of root gives up root for."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class SharedTmp:
    """A folder of the daemon's that commands of one session have as /tmp."""

    path: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    base: Base
    network: NetworkRule
    grants: tuple[Grant, ...] = ()
    masks: tuple[Mask, ...] = ()
    links: tuple[Link, ...] = ()
    protected: tuple[Protected, ...] = ()
    run_as: RunAs | None = None
    image: str | None = None
    tmp_bytes: int = TMP_BYTES
    shm_bytes: int = SHM_BYTES
    limits: Limits | None = None  # built into the sandbox itself: containers only
    # What masks and protected paths were when they were planned: a mount stays on the inode that it
    # was made on, so a sandbox is of no use once the name leads to another one.
    mount_points: tuple[Identity, ...] = ()
    shared_tmp: SharedTmp | None = None
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Cached: a spec has about a hundred parts and is used as a key many times."""
        if self._hash is None:
            parts = (
                self.base, self.network, self.grants, self.masks, self.links, self.protected,
                self.run_as, self.image, self.tmp_bytes, self.shm_bytes, self.limits,
                self.mount_points, self.shared_tmp,
            )  # fmt: skip
            object.__setattr__(self, "_hash", hash(parts))
        return self._hash or 0

    def paths(self, access: Access) -> list[str]:
        """What is allowed, without the folders that are only pinned inside it."""
        return [g.path for g in self.grants if g.access == access and g.origin != "pin"]


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit was asked for."""

    memory_bytes: int | None = None
    cpu_s: float | None = None
    processes: int | None = None
    default_processes: int | None = None  # a preset's: held without a cgroup of the command's own
    file_bytes: int | None = None
    output_bytes: int | None = None
    cpus: float | None = None  # a rate, where cpu_s is an amount

    @property
    def process_bound(self) -> int | None:
        """How many processes the command may have at once, by manifest or preset."""
        return self.default_processes if self.processes is None else self.processes


@dataclass(frozen=True, slots=True)
class Plan:
    """`asked`: the manifest fields whose enforcement the result reports."""

    sandbox: SandboxSpec
    syscall_policy: SyscallPolicy
    timeout_s: float | None
    limits: Limits
    env: tuple[tuple[str, str], ...]
    cwd: str
    asked: frozenset[str] = field(default_factory=frozenset)
    backend: str | None = None
    preset: str | None = None
    workspace: str | None = None
    nested: Repositories = field(default_factory=Repositories)
    # Default masks that would show and that do not exist: nothing can be mounted over them.
    absent_secrets: tuple[str, ...] = ()
    # The main checkout of a workspace that is a linked git worktree.
    checkout: str | None = None

    @property
    def grants_workspace(self) -> str | None:
        """The workspace that approvals for "always" are kept for."""
        return self.checkout or self.workspace
