"""Turn the mount plan into the engine's mounts. Pure except for the mount point folders.

The root is the image's, except with `base: host`: then the host's folders are bound over it,
read-only, one by one. Everything else follows the mount plan of all backends, with two differences.
A symlink cannot be made in a read-only root, so the caller's spelling of a path is bound a second
time with all mounts below it. And a read-only bind leaves the mounts below it writable on engines
before 25, so read-only binds are not recursive, and the mounts below are bound separately.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from sandboxd.policy.mounts.mount_plan import (
    HOST_CONTENT,
    Host,
    Mount,
    MountKind,
    MountPlan,
    mount_plan,
)
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.plan import Identity, SandboxSpec, SharedTmp
from sandboxd_proto.errors import PathDenied, PolicyNotSupported

# Mounted by the engine or the sandbox, never from the host.
_NOT_FROM_ROOT = frozenset({"/proc", "/dev", "/sys", "/tmp"})


class ContainerBind(msgspec.Struct, frozen=True):
    """A host path at `dest`. With an identity, it must be exactly that inode.

    `checked`: what is at `dest` inside is compared with it.
    """

    source: str
    dest: str
    writable: bool = False
    identity: Identity | None = None
    checked: bool = True


class Tmpfs(msgspec.Struct, frozen=True):
    dest: str


ContainerMount = ContainerBind | Tmpfs
# (path inside, places right in it) → a folder of the daemon that has their mount points
MakeMountpoints = Callable[[str, tuple[Mount, ...]], str]


def shows_host_root(spec: SandboxSpec) -> bool:
    return spec.base == "host" and spec.image is None


def container_mount_plan(spec: SandboxSpec, host: Host) -> MountPlan:
    """The mount plan inside. Links that cannot be made as symlinks have become binds."""
    whole = mount_plan(spec, host) if shows_host_root(spec) else _on_image(spec, host)
    links = [p for p in whole.places if p.kind is MountKind.LINK and not _in_mountpoints(p, whole)]
    doubled = [place for link in links for place in _doubled(link, whole)]
    kept = [p for p in whole.places if p not in links]
    return MountPlan([*kept, *doubled])


def _on_image(spec: SandboxSpec, host: Host) -> MountPlan:
    """Leave out masks and protected paths of the host's root where an image is the root."""
    image = Host(system=(), homes=(), name_files=host.name_files)
    bare = replace(spec, base="minimal", masks=(), protected=())
    granted = mount_plan(bare, image)
    return mount_plan(
        replace(
            bare,
            masks=tuple(m for m in spec.masks if granted.shows_host(m.path)),
            protected=tuple(
                p
                for p in spec.protected
                if granted.at(p.path).kind in (MountKind.WRITE, MountKind.READ)
            ),
        ),
        image,
    )


def _in_mountpoints(place: Mount, whole: MountPlan) -> bool:
    """Whether the daemon makes the folder that holds a link: there it can be a symlink."""
    around = whole.at(os.path.dirname(place.path))
    return around.kind in (MountKind.HIDDEN, MountKind.MASK)


def _doubled(link: Mount, whole: MountPlan) -> Iterator[Mount]:
    target = os.path.normpath(os.path.join(os.path.dirname(link.path), link.target))
    ruling = whole.at(target)
    if ruling.kind is MountKind.PRIVATE:
        yield Mount(link.path, MountKind.PRIVATE)
    if ruling.kind not in HOST_CONTENT:
        return
    real = os.path.realpath(target)
    ruling = whole.at(real)
    if ruling.kind in HOST_CONTENT:
        yield replace(ruling, path=link.path, target=real, is_dir=os.path.isdir(real), grant=None)
        for place in _below(real, whole):
            inside = link.path + place.path[len(real) :]
            yield replace(place, path=inside, target=place.target or place.path)


def _below(path: str, whole: MountPlan) -> list[Mount]:
    return [place for place in whole.places if is_below(place.path, path)]


class ContainerMountSources(msgspec.Struct, frozen=True):
    """`submounts`: where the host has file systems mounted. `root`: the names in its root.
    `engine_root`: the engine's own files. `names`: the folder with the files that say which hosts
    exist, where only named ones do."""

    empty_file: str
    empty_dir: str
    mountpoints: MakeMountpoints
    root: tuple[str, ...] = ()
    submounts: tuple[str, ...] = ()
    engine_root: str = ""
    names: str = ""
    shared_tmp: SharedTmp | None = None


def mounts(places: MountPlan, around: ContainerMountSources) -> list[ContainerMount]:
    """In the order of the layout; the engine sorts by depth, too."""
    found: dict[str, ContainerMount] = {}
    for place in places.places:
        for mount in _mounts_of(place, places, around):
            found[mount.dest] = mount
    return list(found.values())


def _mounts_of(
    place: Mount, whole: MountPlan, around: ContainerMountSources
) -> Iterable[ContainerMount]:
    path = place.path
    if path == "/":
        return _root(place, whole, around)
    match place.kind:
        case MountKind.PRIVATE if path == "/tmp" and around.shared_tmp is not None:
            shared = around.shared_tmp
            return [ContainerBind(shared.path, path, True, shared.identity)]
        case MountKind.PRIVATE:
            return [] if path == "/dev/shm" else [Tmpfs(path)]
        case MountKind.HIDDEN:
            return [ContainerBind(around.mountpoints(path, _right_in(place, whole)), path)]
        case MountKind.WRITE | MountKind.READ | MountKind.SYSTEM | MountKind.PROTECTED:
            return _host(place, whole, around)
        case MountKind.CURATED if place.target:
            return [ContainerBind(os.path.join(around.names, place.target), path)]
        case MountKind.MASK:
            return [ContainerBind(_mask_source(place, whole, around), path)]
        case _:
            return []


def _host(place: Mount, whole: MountPlan, around: ContainerMountSources) -> Iterator[ContainerBind]:
    source = place.target or place.path
    writable = place.kind is MountKind.WRITE
    identity = place.grant.identity if place.grant else None
    if around.engine_root and within(around.engine_root, source):
        yield from _around_engine(place, source, whole, around)
        return
    yield ContainerBind(source, place.path, writable, identity)
    if writable or not place.is_dir:
        return
    for inner in around.submounts:
        if is_below(inner, source):
            dest = place.path.rstrip("/") + inner[len(source.rstrip("/")) :]
            if whole.at(dest) is place:
                yield ContainerBind(inner, dest)


def _around_engine(
    place: Mount, source: str, whole: MountPlan, around: ContainerMountSources
) -> Iterator[ContainerBind]:
    """A bind of a folder that holds the engine's own files would show every new mount of the
    host. So the folders beside them are bound one by one instead."""
    if place.kind is MountKind.WRITE or source == around.engine_root:
        raise PathDenied(
            f"{source} cannot be allowed: it holds the engine's own files ({around.engine_root})",
            field="fs_write_allow" if place.kind is MountKind.WRITE else "fs_read_allow",
            remedy="name the folders beside them",
        )
    for name in sorted(_names(source)):
        inner, dest = f"{source}/{name}", f"{place.path}/{name}"
        real = os.path.realpath(inner)
        if inner == around.engine_root or whole.at(dest) is not place:
            continue
        if real != inner:
            if whole.at(real).kind in HOST_CONTENT and not real.startswith(around.engine_root):
                yield ContainerBind(real, dest, checked=False)
        elif os.path.isdir(inner) or os.path.isfile(inner):
            entry = Mount(dest, MountKind.SYSTEM, os.path.isdir(inner), target=inner)
            yield from _host(entry, MountPlan([*whole.places, entry]), around)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _root(place: Mount, whole: MountPlan, around: ContainerMountSources) -> Iterator[ContainerBind]:
    if place.kind is MountKind.WRITE:
        raise PolicyNotSupported(
            "a container cannot have the host's whole root writable",
            field="fs_write_allow",
            remedy="name the folders that are to be written",
        )
    if place.kind not in HOST_CONTENT:
        return
    for name in around.root:
        path = f"/{name}"
        shown = whole.at(os.path.realpath(path)).kind in HOST_CONTENT
        if path in _NOT_FROM_ROOT or whole.at(path) is not place or not shown:
            continue
        source = os.path.realpath(path)
        if source != path:
            # The image may have the same link; then nothing is mounted at this path.
            yield ContainerBind(source, path, checked=False)
        else:
            entry = Mount(path, MountKind.SYSTEM, os.path.isdir(path))
            yield from _host(entry, MountPlan([*whole.places, entry]), around)


def _right_in(place: Mount, whole: MountPlan) -> tuple[Mount, ...]:
    return tuple(
        inner for inner in _below(place.path, whole)
        if whole.at(os.path.dirname(inner.path)) is place
    )  # fmt: skip


def _mask_source(place: Mount, whole: MountPlan, around: ContainerMountSources) -> str:
    if not place.is_dir:
        return around.empty_file
    inner = _right_in(place, whole)
    return around.mountpoints(place.path, inner) if inner else around.empty_dir
