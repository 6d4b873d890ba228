"""Which access-control entries a sandbox needs on which files. Pure: a plan, nothing is written.

Grants go to capability SIDs, so that they are written once for a folder. What is protected or
masked inside a granted folder is denied to the same capability by an explicit entry, which is read
before an inherited one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from sandboxd.policy.paths.within import within
from sandboxd.policy.plan import SandboxSpec
from sandboxd.windows.app_containers.packages import grant_capability

READ = 0x1200A9  # FILE_GENERIC_READ | FILE_GENERIC_EXECUTE
DELETE = 0x10000
WRITE_DAC, WRITE_OWNER = 0x40000, 0x80000
WRITE = READ | 0x120116 | DELETE  # FILE_GENERIC_WRITE, but neither DELETE_CHILD nor WRITE_DAC
_WRITE_BITS = 0x2 | 0x4 | 0x10 | 0x40 | 0x100 | DELETE | WRITE_DAC | WRITE_OWNER
ALL = 0x1F01FF
# CONTAINER_INHERIT | OBJECT_INHERIT: counts for everything below.
INHERITED = 0x3
NOT_INHERITED = 0x0


Kind = Literal["allow", "deny"]


class AclEntry(msgspec.Struct, frozen=True, order=True):
    """One access-control entry. `path` is internal."""

    path: str
    sid: str
    kind: Kind
    mask: int
    inheritance: int


class AclPlan(msgspec.Struct, frozen=True):
    """`capabilities`: what a command of this plan must have, and nothing else."""

    entries: tuple[AclEntry, ...]
    capabilities: frozenset[str]


def acl_plan(spec: SandboxSpec, daemon: str = "") -> AclPlan:
    """`daemon`: as for `grant_capability`."""
    grants = [grant for grant in spec.grants if grant.origin != "pin"]
    entries: set[AclEntry] = set()
    for grant in grants:
        sid = grant_capability(grant.path, grant.access, daemon)
        inheritance = INHERITED if grant.identity.is_dir else NOT_INHERITED
        mask = WRITE if grant.access == "write" else READ
        entries.add(AclEntry(grant.path, sid, "allow", mask, inheritance))
    writers = [grant.path for grant in grants if grant.access == "write"]
    readers = [grant.path for grant in grants]
    present = [one.path for one in spec.protected if one.present]
    read_only = [grant.path for grant in grants if grant.access == "read"]
    for path in (*present, *read_only):
        entries.update(_denied(path, writers, _WRITE_BITS, "write", daemon))
    for masked in spec.masks:
        for access in ("read", "write"):
            entries.update(_denied(masked.path, readers, ALL, access, daemon))
    kept = [*present, *read_only, *(mask.path for mask in spec.masks)]
    entries.update(_not_renamed(kept, writers, daemon))
    sids = frozenset(entry.sid for entry in entries if entry.kind == "allow")
    chosen = sorted(entry for entry in entries if entry.sid in sids)
    # Denials are written first and taken back last: nothing is granted without them.
    return AclPlan(tuple(sorted(chosen, key=lambda entry: entry.kind == "allow")), sids)


def _denied(
    path: str, roots: Iterable[str], mask: int, access: str, daemon: str
) -> Iterator[AclEntry]:
    for root in roots:
        if within(path, root) and path != root:
            yield AclEntry(path, grant_capability(root, access, daemon), "deny", mask, INHERITED)


def _not_renamed(kept: Iterable[str], writers: Iterable[str], daemon: str) -> Iterator[AclEntry]:
    """A folder between a writable root and what is kept must not be moved away with it."""
    roots = list(writers)
    for path in kept:
        for root in roots:
            at = posixpath.dirname(path)
            while within(at, root) and at != root:
                sid = grant_capability(root, "write", daemon)
                yield AclEntry(at, sid, "deny", DELETE, NOT_INHERITED)
                at = posixpath.dirname(at)
