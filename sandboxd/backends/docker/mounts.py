"""What stands where in a container: a layout to the engine's mounts. Pure but for `Hollows`.

The root is the image's, except with `base: host`: then the host's own folders are bound over it,
read-only, one by one. Everything else follows the layout that every backend shares, with two
differences of engines. There is no way to make a symlink in a read-only root, so a caller's own
spelling of a path is bound a second time, with everything that lies in it. And a read-only bind
leaves the mounts below it writable on engines before 25, so read-only binds are not recursive, and
what is mounted below them is bound by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from sandboxd.policy.layout import HOST_CONTENT, Host, Kind, Layout, Place, layout
from sandboxd.policy.plan import Identity, SandboxSpec
from sandboxd_proto.errors import PathDenied, PolicyNotSupported

TMP_BYTES = 1 << 30
# The engine's own, or the sandbox's: never the host's.
_NOT_FROM_ROOT = frozenset({"/proc", "/dev", "/sys", "/tmp"})


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path at `dest`. With an identity, it must be exactly that inode.

    `checked`: what is at `dest` inside is compared with it.
    """

    source: str
    dest: str
    writable: bool = False
    identity: Identity | None = None
    checked: bool = True


@dataclass(frozen=True, slots=True)
class Tmpfs:
    dest: str


Mount = Bind | Tmpfs
# (path inside, places right in it) → a folder of the daemon that has their mount points
Hollow = Callable[[str, tuple[Place, ...]], str]


def shows_host_root(spec: SandboxSpec) -> bool:
    return spec.base == "host" and spec.image is None


def container_layout(spec: SandboxSpec, host: Host) -> Layout:
    """The layout inside. Links that only a bind can stand for have become places of their own."""
    whole = layout(spec, host) if shows_host_root(spec) else _on_image(spec, host)
    links = [p for p in whole.places if p.kind is Kind.LINK and not _in_hollow(p, whole)]
    doubled = [place for link in links for place in _doubled(link, whole)]
    kept = [p for p in whole.places if p not in links]
    return Layout([*kept, *doubled])


def _on_image(spec: SandboxSpec, host: Host) -> Layout:
    """Masks and protected paths of the host's root have no meaning where an image is the root."""
    image = Host(system=(), homes=(), name_files=host.name_files)
    bare = replace(spec, base="minimal", masks=(), protected=())
    granted = layout(bare, image)
    return layout(
        replace(
            bare,
            masks=tuple(m for m in spec.masks if granted.shows_host(m.path)),
            protected=tuple(
                p for p in spec.protected if granted.at(p.path).kind in (Kind.WRITE, Kind.READ)
            ),
        ),
        image,
    )


def _in_hollow(place: Place, whole: Layout) -> bool:
    """Whether the daemon makes the folder that a link lies in: there it can be a symlink."""
    around = whole.at(os.path.dirname(place.path))
    return around.kind in (Kind.HIDDEN, Kind.MASK)


def _doubled(link: Place, whole: Layout) -> Iterator[Place]:
    target = os.path.normpath(os.path.join(os.path.dirname(link.path), link.target))
    ruling = whole.at(target)
    if ruling.kind is Kind.PRIVATE:
        yield Place(link.path, Kind.PRIVATE)
    if ruling.kind not in HOST_CONTENT:
        return
    real = os.path.realpath(target)
    ruling = whole.at(real)
    if ruling.kind in HOST_CONTENT:
        yield replace(ruling, path=link.path, target=real, is_dir=os.path.isdir(real), grant=None)
        for place in _below(real, whole):
            inside = link.path + place.path[len(real) :]
            yield replace(place, path=inside, target=place.target or place.path)


def _below(path: str, whole: Layout) -> list[Place]:
    start = path.rstrip("/") + "/"
    return [place for place in whole.places if place.path.startswith(start)]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`submounts`: where the host has file systems mounted. `root`: the names in its root.
    `engine_root`: the engine's own files. `names`: the folder with the files that say which hosts
    exist, where only named ones do."""

    empty_file: str
    empty_dir: str
    hollow: Hollow
    root: tuple[str, ...] = ()
    submounts: tuple[str, ...] = ()
    engine_root: str = ""
    names: str = ""


def mounts(places: Layout, around: Surroundings) -> list[Mount]:
    """In the order of the layout; the engine sorts by depth, too."""
    found: dict[str, Mount] = {}
    for place in places.places:
        for mount in _mounts_of(place, places, around):
            found[mount.dest] = mount
    return list(found.values())


def _mounts_of(place: Place, whole: Layout, around: Surroundings) -> Iterable[Mount]:
    path = place.path
    if path == "/":
        return _root(place, whole, around)
    match place.kind:
        case Kind.PRIVATE:
            return [] if path == "/dev/shm" else [Tmpfs(path)]
        case Kind.HIDDEN:
            return [Bind(around.hollow(path, _right_in(place, whole)), path)]
        case Kind.WRITE | Kind.READ | Kind.SYSTEM | Kind.PROTECTED:
            return _host(place, whole, around)
        case Kind.CURATED if place.target:
            return [Bind(os.path.join(around.names, place.target), path)]
        case Kind.MASK:
            return [Bind(_mask_source(place, whole, around), path)]
        case _:
            return []


def _host(place: Place, whole: Layout, around: Surroundings) -> Iterator[Bind]:
    source = place.target or place.path
    writable = place.kind is Kind.WRITE
    identity = place.grant.identity if place.grant else None
    if around.engine_root and f"{around.engine_root}/".startswith(f"{source}/"):
        yield from _around_engine(place, source, whole, around)
        return
    yield Bind(source, place.path, writable, identity)
    if writable or not place.is_dir:
        return
    for inner in around.submounts:
        if inner.startswith(source.rstrip("/") + "/"):
            dest = place.path.rstrip("/") + inner[len(source.rstrip("/")) :]
            if whole.at(dest) is place:
                yield Bind(inner, dest)


def _around_engine(
    place: Place, source: str, whole: Layout, around: Surroundings
) -> Iterator[Bind]:
    """An engine binds a folder that holds its own files only so that every new mount of the host
    shows in it, too. What is beside them is bound one by one instead."""
    if place.kind is Kind.WRITE or source == around.engine_root:
        raise PathDenied(
            f"{source} cannot be allowed: it holds the engine's own files ({around.engine_root})",
            field="fs_write_allow" if place.kind is Kind.WRITE else "fs_read_allow",
            remedy="name the folders beside them",
        )
    for name in sorted(_names(source)):
        inner, dest = f"{source}/{name}", f"{place.path}/{name}"
        real = os.path.realpath(inner)
        if inner == around.engine_root or whole.at(dest) is not place:
            continue
        if real != inner:
            if whole.at(real).kind in HOST_CONTENT and not real.startswith(around.engine_root):
                yield Bind(real, dest, checked=False)
        elif os.path.isdir(inner) or os.path.isfile(inner):
            entry = Place(dest, Kind.SYSTEM, os.path.isdir(inner), target=inner)
            yield from _host(entry, Layout([*whole.places, entry]), around)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _root(place: Place, whole: Layout, around: Surroundings) -> Iterator[Bind]:
    if place.kind is Kind.WRITE:
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
            # The image may have the same link, and then nothing stands at this very path.
            yield Bind(source, path, checked=False)
        else:
            entry = Place(path, Kind.SYSTEM, os.path.isdir(path))
            yield from _host(entry, Layout([*whole.places, entry]), around)


def _right_in(place: Place, whole: Layout) -> tuple[Place, ...]:
    return tuple(
        inner for inner in _below(place.path, whole)
        if whole.at(os.path.dirname(inner.path)) is place
    )  # fmt: skip


def _mask_source(place: Place, whole: Layout, around: Surroundings) -> str:
    if not place.is_dir:
        return around.empty_file
    inner = _right_in(place, whole)
    return around.hollow(place.path, inner) if inner else around.empty_dir
