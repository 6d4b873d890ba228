"""The resolved plan: absolute canonical paths, limits, network, environment. No choices are left.

A plan has two parts. `SandboxSpec` is what a sandbox is built from; it is hashable, and two
commands with equal specs may use sandboxes of one pool. The rest belongs to one command.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from sandboxd_proto.manifest import Base, NetworkKind, SyscallPolicy

Access = Literal["read", "write"]
# "pin": a writable folder bound onto itself only so that it cannot be renamed (see pins.py).
Origin = Literal["caller", "preset", "toolchain", "cache", "pin"]
# What may become of a protected path that is not mounted read-only:
# "absent": it must not come into being (or, if it is a symlink, be replaced);
# "new_repository": a git dir may be made there as long as nothing in it runs code;
# "unfinished_rebase": may come and go, but must not be left behind with new exec lines.
Rule = Literal["absent", "new_repository", "unfinished_rebase"]


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """Which inode a path was when it was checked; binding anything else would be a swap."""

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
class SandboxSpec:
    base: Base
    network: NetworkRule
    grants: tuple[Grant, ...] = ()
    masks: tuple[Mask, ...] = ()
    links: tuple[Link, ...] = ()
    protected: tuple[Protected, ...] = ()
    run_as: RunAs | None = None
    image: str | None = None
    limits: Limits | None = None  # built into the sandbox itself: containers only
    config_version: int = 0
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Worked out once: a spec of a workspace has a hundred parts, and is a key many times."""
        if self._hash is None:
            parts = (
                self.base, self.network, self.grants, self.masks, self.links, self.protected,
                self.run_as, self.image, self.limits, self.config_version,
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
    file_bytes: int | None = None
    output_bytes: int | None = None
    cpus: float | None = None  # a rate, where cpu_s is an amount


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
