"""Which protected paths would be writable otherwise: the daemon's own code, and what runs later."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from sandboxd.policy.mounts.mount_plan import Host, MountKind, mount_plan
from sandboxd.policy.mounts.own_paths import OwnPaths
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.closed_folders import closed_to
from sandboxd.policy.paths.within import within
from sandboxd.policy.plan import Grant, Identity, Protected, RunAs, SandboxSpec
from sandboxd_proto.errors import PathDenied


def own_code(spec: SandboxSpec, own: OwnPaths) -> tuple[Protected, ...]:
    """The daemon's code where a caller's writable path contains it."""
    found: list[Protected] = []
    for root in spec.paths("write"):
        below = root.rstrip("/") + "/"
        for path in own.read_only:
            if path.startswith(below):
                found.append(Protected(path, root, present=True, is_dir=recording_fs.isdir(path)))
    return tuple(found)


def within_reach(protected: Iterable[Protected], user: RunAs) -> Iterator[Protected]:
    """For a daemon of root, whose commands see less than it does. In a folder that only another
    user can enter or open nothing is mounted: the folder itself is read-only."""
    known: dict[tuple[str, str], str | None] = {}
    for one in protected:
        key = posixpath.dirname(one.path), one.root
        if key not in known:
            known[key] = closed_to(one.path, user.uid, user.gid, below=one.root)
        closed = known[key]
        yield Protected(closed, one.root, present=True, is_dir=True) if closed else one


def settle(
    own: Iterable[Protected], more: Iterable[Protected], spec: SandboxSpec, host: Host
) -> tuple[Protected, ...]:
    """Those that would be writable otherwise.

    A file protected inside a masked folder would show it. `more`, but never the daemon's own, gives
    way to a caller who makes the very path writable by name.
    """
    places = mount_plan(spec, host)
    asked = [g for g in spec.grants if g.origin == "caller" and g.access == "write"]
    named = {g.path for g in asked if g.by_name}
    more = list(more)
    # To name the workspace says nothing about git dirs.
    kept_always = ("top", "bare_git_dir")
    named_only = [p for p in more if p.rule not in kept_always]
    _refuse_by_link([g for g in asked if not g.by_name], named_only)
    wanted = {*own, *(p for p in more if p.rule in kept_always or p.path not in named)}
    open_ = (p for p in wanted if places.at(p.path).kind is MountKind.WRITE)
    return tuple(sorted(open_, key=lambda p: (p.path, p.root)))


def identified(
    kept: Iterable[Protected], own: Collection[Protected]
) -> tuple[tuple[Protected, ...], tuple[Identity, ...]]:
    """These with the inodes of those that exist. What has vanished since it was found counts as
    absent, and is watched; the daemon's own must exist."""
    found: list[Protected] = []
    identities: list[Identity] = []
    for one in kept:
        try:
            identities += [Identity.of(recording_fs.lstat(one.path))] if one.present else []
        except OSError as error:
            if one in own or error.errno not in recording_fs.VANISHED:
                raise
            found.append(replace(one, present=False, is_dir=False))
        else:
            found.append(one)
    return tuple(found), tuple(identities)


def _refuse_by_link(linked: list[Grant], more: list[Protected]) -> None:
    for grant in linked:
        for one in more:
            if within(grant.path, one.path):
                raise PathDenied(
                    f"a symlink that a sandboxed command could have made leads to {grant.path}, "
                    "which is protected",
                    field="fs_write_allow",
                    remedy="leave the link out of the request",
                )
