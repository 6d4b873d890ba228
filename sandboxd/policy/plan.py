"""The resolved plan: absolute canonical paths, limits, network, environment.

A plan has two parts. `SandboxSpec` is what a sandbox is built from; it is hashable, and two
commands with equal specs may use sandboxes of one pool. The rest belongs to one command.
"""

from __future__ import annotations

import os
from typing import Literal

import msgspec

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
    "absent", "new_repository", "git_dir", "shared_git_dir", "bare_git_dir", "git_info", "top",
    "linked",
]  # fmt: skip
GIT_DIR_RULES = frozenset(("git_dir", "shared_git_dir", "bare_git_dir"))
FOLDER_RULES = frozenset((*GIT_DIR_RULES, "git_info", "top"))
# What is judged by its content, and was there before the command.
JUDGED_RULES = FOLDER_RULES | {"linked"}


class Identity(msgspec.Struct, frozen=True, order=True):
    """The inode of a path when it was checked; another one at the bind means a swap."""

    device: int
    inode: int
    is_dir: bool

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        import stat

        return cls(status.st_dev, status.st_ino, stat.S_ISDIR(status.st_mode))


class Grant(msgspec.Struct, frozen=True, order=True):
    """A host path that is visible inside at the same place."""

    path: str
    access: Access
    identity: Identity
    origin: Origin = "caller"
    by_name: bool = True  # False: through a symlink that a command could have made


class Link(msgspec.Struct, frozen=True, order=True):
    """A symlink to recreate inside, so that the caller's own spelling of a path keeps working."""

    path: str
    target: str


class Mask(msgspec.Struct, frozen=True, order=True):
    """A host path that reads as an empty file or folder inside."""

    path: str
    is_dir: bool


class Protected(msgspec.Struct, frozen=True, order=True):
    """A path below the writable `root` that a command must not change.

    `present`: it is there and is mounted read-only. Otherwise it is watched and judged by `rule`.
    With one of FOLDER_RULES it is the folder whose entries are watched. "linked": a file that has
    another name, where no mount keeps it.
    """

    path: str
    root: str
    present: bool
    is_dir: bool = False
    rule: Rule = "absent"


class NetworkRule(msgspec.Struct, frozen=True):
    """`hosts` in normal form, with those of groups and of the config; `named`: as requested."""

    kind: NetworkKind
    hosts: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


class RunAs(msgspec.Struct, frozen=True):
    """The identity that a daemon of root gives up root for."""

    uid: int
    gid: int


class SharedTmp(msgspec.Struct, frozen=True):
    """A folder of the daemon's that commands of one session have as /tmp."""

    path: str
    identity: Identity


class SandboxSpec(msgspec.Struct, frozen=True, cache_hash=True):
    """The hash is kept: a spec has about a hundred parts, and is a key at many places."""

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

    def paths(self, access: Access) -> list[str]:
        """What is allowed, without the folders that are only pinned inside it."""
        return [g.path for g in self.grants if g.access == access and g.origin != "pin"]

    @property
    def watched(self) -> list[str]:
        """The folders in which protected paths that appear are moved aside."""
        return sorted({one.root for one in self.protected})


class Limits(msgspec.Struct, frozen=True):
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


class Plan(msgspec.Struct, frozen=True):
    """`asked`: the manifest fields whose enforcement the result reports."""

    sandbox: SandboxSpec
    syscall_policy: SyscallPolicy
    timeout_s: float | None
    limits: Limits
    env: tuple[tuple[str, str], ...]
    cwd: str
    asked: frozenset[str] = msgspec.field(default_factory=frozenset)
    backend: str | None = None
    preset: str | None = None
    workspace: str | None = None
    nested: Repositories = msgspec.field(default_factory=Repositories)
    # Default masks that would show and that do not exist: nothing can be mounted over them.
    absent_secrets: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()  # the masks that `fs_deny` asked for
    # Symlinks on the way of masks: while one leads elsewhere, what is to be hidden may show.
    mask_links: tuple[Link, ...] = ()
    # The main checkout of a workspace that is a linked git worktree.
    checkout: str | None = None

    @property
    def grants_workspace(self) -> str | None:
        """The workspace that approvals for "always" are kept for."""
        return self.checkout or self.workspace
