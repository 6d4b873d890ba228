"""Folders that must not be renamed while a path below them is kept from a command.

A read-only mount on `.git/hooks` is bypassed with `mv .git x; mkdir -p .git/hooks`. A mount point
cannot be renamed (EBUSY), so every folder between a writable root and a protected, masked or
read-only path in it is bound onto itself. The same holds for masks: the next command could read a
moved file under its new name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from sandboxd.policy.mounts.mount_plan import Host, MountKind, MountPlan, mount_plan
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.plan import Grant, Identity, SandboxSpec


def pins(spec: SandboxSpec, host: Host) -> tuple[Grant, ...]:
    """Writable grants with origin "pin", for folders that are no place of the layout yet."""
    places = mount_plan(spec, host)
    wanted: set[str] = set()
    for folder in {posixpath.dirname(path) for path in _kept(spec)}:
        wanted.update(_between(folder, places))
    return tuple(sorted(grant for path in wanted for grant in _pin(path)))


def _kept(spec: SandboxSpec) -> Iterator[str]:
    yield from (p.path for p in spec.protected)
    yield from (m.path for m in spec.masks)
    yield from (g.path for g in spec.grants if g.access == "read")


def _between(at: str, places: MountPlan) -> Iterator[str]:
    while at != "/":
        ruling = places.at(at)
        if ruling.path == at or ruling.kind is not MountKind.WRITE:
            return
        yield at
        at = posixpath.dirname(at)


def _pin(path: str) -> list[Grant]:
    try:
        identity = Identity.of(recording_fs.lstat(path))
    except OSError:
        return []  # a watched path may lie in folders that do not exist yet
    return [Grant(path, "write", identity, "pin")] if identity.is_dir else []
