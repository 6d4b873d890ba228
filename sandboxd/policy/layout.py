"""What stands where inside a sandbox: the one answer that mounts, checks and denials share.

A layout is a list of places sorted by depth. Mounts are made in this order (a read-only path that
is bound before the writable one that contains it would become writable), and the place that rules
a path is the deepest one at or above it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from sandboxd.policy import hostfs
from sandboxd.policy.plan import Grant, SandboxSpec


class Kind(IntEnum):
    """At one and the same path the later kind wins: what is stricter is mounted last."""

    ROOT = 0  # the sandbox's own empty root, read-only
    PRIVATE = 1  # an empty writable file system of the sandbox
    HIDDEN = 2  # an empty read-only folder over a host folder
    SYSTEM = 3  # a host folder of the base, read-only
    CURATED = 4  # /etc, made for the sandbox
    LINK = 5
    WRITE = 6  # a host path, writable
    READ = 7  # a host path, read-only
    PROTECTED = 8  # a host path inside a writable one that stays read-only
    MASK = 9  # reads as empty
    PROC = 10
    DEV = 11


@dataclass(frozen=True, slots=True)
class Place:
    path: str
    kind: Kind
    is_dir: bool = True
    target: str = ""  # of a link; of a curated file its name among those made for the sandbox
    grant: Grant | None = None


READABLE = frozenset(
    {Kind.PRIVATE, Kind.SYSTEM, Kind.CURATED, Kind.WRITE, Kind.READ, Kind.PROTECTED,
     Kind.PROC, Kind.DEV, Kind.LINK, Kind.ROOT, Kind.HIDDEN, Kind.MASK}
)  # fmt: skip
HOST_CONTENT = frozenset({Kind.SYSTEM, Kind.WRITE, Kind.READ, Kind.PROTECTED})
WRITABLE = frozenset({Kind.PRIVATE, Kind.WRITE, Kind.DEV})


@dataclass(frozen=True, slots=True)
class Host:
    """The facts of this machine that a layout depends on."""

    system: tuple[tuple[str, str | None], ...]  # (folder, its link target if it is a symlink)
    homes: tuple[str, ...]
    resolv_conf: str | None = None  # canonical, when it lies outside /etc
    # (canonical path, name) of the files of /etc that say how host names are found
    name_files: tuple[tuple[str, str], ...] = ()
    churning: tuple[str, ...] = ()

    @classmethod
    def current(cls, home: str) -> Host:
        found: list[tuple[str, str | None]] = []
        for path in _SYSTEM:
            if hostfs.islink(path):
                found.append((path, hostfs.readlink(path)))
            elif hostfs.isdir(path):
                found.append((path, None))
        homes = {h for h in ("/home", "/root", hostfs.realpath(home)) if hostfs.isdir(h)}
        homes.discard("/")
        # One inside another would stay hidden although the caller allows the outer one.
        homes = {h for h in homes if not any(h.startswith(outer + "/") for outer in homes)}
        resolv = hostfs.realpath("/etc/resolv.conf")
        outside = resolv if hostfs.isfile(resolv) and not resolv.startswith("/etc/") else None
        churning = tuple(path for path in _CHURNING if hostfs.isdir(path))
        return cls(tuple(found), tuple(sorted(homes)), outside, _name_files(), churning)


def _name_files() -> tuple[tuple[str, str], ...]:
    paths = ((hostfs.realpath(os.path.join("/etc", name)), name) for name in NAME_FILES)
    return tuple((path, name) for path, name in paths if hostfs.isfile(path))


# Without a resolv.conf the C library asks 127.0.0.1, which is what a sandbox's would say.
NAME_FILES = ("hosts", "resolv.conf", "nsswitch.conf")
# Container engines mount and unmount here all the time. A mount that appears in a sandbox ends it,
# unless it is covered; and nothing in there is for a command to read.
_CHURNING = (
    "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet",
    "/var/lib/lxc", "/var/lib/machines",
)  # fmt: skip

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
    "/nix/store",  # programs of Nix machines live only here
    "/opt",  # vendor packages
)  # fmt: skip


class Layout:
    """All places of one sandbox, shallow before deep."""

    def __init__(self, places: Iterable[Place]) -> None:
        chosen: dict[str, Place] = {}
        for place in sorted(places, key=lambda p: p.kind):
            chosen[place.path] = place
        self.places = tuple(sorted(chosen.values(), key=lambda p: (_depth(p.path), p.path)))
        self._by_path = {place.path: place for place in self.places}

    def at(self, path: str) -> Place:
        """The place that rules `path` (canonical, as seen inside)."""
        while path not in self._by_path:
            if path == "/":
                return Place("/", Kind.ROOT)
            # dirname() of a canonical path; asked hundreds of times for every plan.
            path = path[: path.rfind("/")] or "/"
        return self._by_path[path]

    def shows_host(self, path: str) -> bool:
        """Whether `path` inside is the host's own."""
        return self.at(path).kind in HOST_CONTENT

    def writable(self, path: str) -> bool:
        return self.at(path).kind in WRITABLE

    def exists(self, path: str) -> bool:
        """Whether a folder can be entered: the host's, one of ours, or above one of ours."""
        place = self.at(path)
        if place.kind in HOST_CONTENT:
            return True
        if place.path == path:
            return place.kind != Kind.MASK or place.is_dir
        below = path.rstrip("/") + "/"
        return any(other.path.startswith(below) for other in self.places)


@lru_cache(maxsize=256)
def layout(spec: SandboxSpec, host: Host) -> Layout:
    places = [*_base_places(spec, host), *_name_places(spec, host), *_grant_places(spec)]
    places += [Place(m.path, Kind.MASK, m.is_dir) for m in spec.masks]
    places += [Place("/proc", Kind.PROC), Place("/dev", Kind.DEV), Place("/dev/shm", Kind.PRIVATE)]
    bare = Layout(places)
    links = [
        Place(link.path, Kind.LINK, is_dir=False, target=link.target)
        for link in spec.links
        if not bare.shows_host(os.path.dirname(link.path)) and link.path not in bare._by_path
    ]
    return Layout([*places, *links])


def _base_places(spec: SandboxSpec, host: Host) -> list[Place]:
    private = [Place("/tmp", Kind.PRIVATE)]
    if spec.base == "host":
        hidden = [Place(path, Kind.HIDDEN) for path in (*host.homes, "/run", *host.churning)]
        places = [Place("/", Kind.SYSTEM), *private, Place("/var/tmp", Kind.PRIVATE), *hidden]
        if host.resolv_conf and spec.network.kind == "inherit":
            # /etc/resolv.conf often leads into /run, which is hidden: names would not resolve.
            places.append(Place(host.resolv_conf, Kind.SYSTEM, is_dir=False))
        return [p for p in places if p.path != "/var/tmp" or hostfs.isdir("/var/tmp")]
    system = [
        Place(path, Kind.LINK, is_dir=False, target=target) if target else Place(path, Kind.SYSTEM)
        for path, target in host.system
    ]
    var_tmp = Place("/var/tmp", Kind.LINK, is_dir=False, target="/tmp")
    return [Place("/", Kind.ROOT), *private, var_tmp, *system, Place("/etc", Kind.CURATED)]


def _name_places(spec: SandboxSpec, host: Host) -> list[Place]:
    """Where only named hosts exist, they are found through files of the sandbox's own."""
    if spec.network.kind != "allow_hosts":
        return []
    files = host.name_files
    if spec.base == "minimal" and not any(grant.path == "/etc" for grant in spec.grants):
        files = tuple((f"/etc/{name}", name) for name in NAME_FILES)
    return [Place(path, Kind.CURATED, is_dir=False, target=name) for path, name in files]


def _grant_places(spec: SandboxSpec) -> list[Place]:
    kinds = {"read": Kind.READ, "write": Kind.WRITE}
    writes = {grant.path for grant in spec.grants if grant.access == "write"}
    places = [
        Place(g.path, kinds[g.access], g.identity.is_dir, grant=g)
        for g in spec.grants
        # A path in both lists is writable: both lists say what is allowed.
        if g.access == "write" or g.path not in writes
    ]
    return places + [
        Place(p.path, Kind.PROTECTED, p.is_dir) for p in spec.protected if p.present
    ]


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")
