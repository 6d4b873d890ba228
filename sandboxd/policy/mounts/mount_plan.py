"""What is mounted where inside a sandbox, for mounting, checking and explaining denials.

A mount plan is a list of mounts sorted by depth. They are made in this order, because a read-only
path that is bound before the writable one that contains it would become writable. The deepest mount
at or above a path decides its access.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache

import msgspec

from sandboxd.policy.data import system_dirs_macos
from sandboxd.policy.data.system_dirs import (
    AMBIENT,
    CONTAINER_ENGINES,
    HOMES,
    PROGRAMS,
    READABLE,
    TOO_WIDE,
)
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.within import folders_above, is_below, within
from sandboxd.policy.plan import Grant, SandboxSpec


class MountKind(IntEnum):
    """At the same path the later kind wins: the stricter one is mounted last."""

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


class Mount(msgspec.Struct, frozen=True):
    path: str
    kind: MountKind
    is_dir: bool = True
    target: str = ""  # of a link; of a curated file its name among those made for the sandbox
    grant: Grant | None = None


HOST_CONTENT = frozenset({MountKind.SYSTEM, MountKind.WRITE, MountKind.READ, MountKind.PROTECTED})
WRITABLE = frozenset({MountKind.PRIVATE, MountKind.WRITE, MountKind.DEV})


class Host(msgspec.Struct, frozen=True):
    """The facts of this machine that a layout depends on."""

    system: tuple[tuple[str, str | None], ...]  # (folder, its link target if it is a symlink)
    homes: tuple[str, ...]
    resolv_conf: str | None = None  # canonical, when it lies outside /etc
    # (canonical path, name) of the files of /etc that say how host names are found
    name_files: tuple[tuple[str, str], ...] = ()
    churning: tuple[str, ...] = ()
    own_home: str = ""  # of the daemon's user, canonical
    variable_home: str = ""  # the same by the variable HOME, if that is another folder

    @classmethod
    def current(cls, home: str, variable_home: str = "") -> Host:
        found: list[tuple[str, str | None]] = []
        for path in PROGRAMS:
            if recording_fs.islink(path):
                found.append((path, recording_fs.readlink(path)))
            elif recording_fs.isdir(path):
                found.append((path, None))
        own = recording_fs.realpath(home)
        variable = recording_fs.realpath(variable_home) if posixpath.isabs(variable_home) else ""
        variable = variable if variable != own and _may_be_hidden(variable) else ""
        homes = {h for h in (*HOMES, own, variable) if recording_fs.isdir(h)}
        homes.discard("/")
        # One inside another would stay hidden although the caller allows the outer one.
        homes = {h for h in homes if not any(is_below(h, outer) for outer in homes)}
        resolv = recording_fs.realpath("/etc/resolv.conf")
        outside = resolv if recording_fs.isfile(resolv) and not is_below(resolv, "/etc") else None
        # A mount that appears in a sandbox ends it, unless it is covered.
        churning = tuple(path for path in CONTAINER_ENGINES if recording_fs.isdir(path))
        return cls(
            tuple(found), tuple(sorted(homes)), outside, _name_files(), churning, own, variable
        )


_PRIVATE = ("/tmp", "/var/tmp")


def _may_be_hidden(home: str) -> bool:
    """Not a folder of the system, one around it, or one in a folder that shows nothing anyway."""
    around = any(within(one, home) for one in (*PROGRAMS, *AMBIENT, *_PRIVATE))
    programs = [one for one in READABLE if one != "/opt"]
    inside = any(within(home, one) for one in (*programs, *_PRIVATE, "/run"))
    return home not in TOO_WIDE and not around and not inside


def _name_files() -> tuple[tuple[str, str], ...]:
    paths = ((recording_fs.realpath(posixpath.join("/etc", name)), name) for name in NAME_FILES)
    return tuple((path, name) for path, name in paths if recording_fs.isfile(path))


# Without a resolv.conf the C library asks 127.0.0.1, the address of the sandbox's responder.
NAME_FILES = ("hosts", "resolv.conf", "nsswitch.conf")


class MountPlan:
    """All places of one sandbox, shallow before deep."""

    def __init__(self, places: Iterable[Mount]) -> None:
        chosen: dict[str, Mount] = {}
        for place in sorted(places, key=lambda p: p.kind):
            chosen[place.path] = place
        self.places = tuple(sorted(chosen.values(), key=lambda p: (_depth(p.path), p.path)))
        self._by_path = {place.path: place for place in self.places}
        self._above = frozenset(folder for path in self._by_path for folder in folders_above(path))

    def at(self, path: str) -> Mount:
        """The place that rules `path` (canonical, as seen inside)."""
        while path not in self._by_path:
            if path == "/":
                return Mount("/", MountKind.ROOT)
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
            return place.kind != MountKind.MASK or place.is_dir
        return self.has_below(path)

    def has_below(self, path: str) -> bool:
        """Whether something is mounted below `path`."""
        return path in self._above


@lru_cache(maxsize=48)
def mount_plan(spec: SandboxSpec, host: Host) -> MountPlan:
    places = [*_base_places(spec, host), *_name_places(spec, host), *_grant_places(spec)]
    places += [Mount(m.path, MountKind.MASK, m.is_dir) for m in spec.masks]
    places += [
        Mount("/proc", MountKind.PROC),
        Mount("/dev", MountKind.DEV),
        Mount("/dev/shm", MountKind.PRIVATE),
    ]
    bare = MountPlan(places)
    links = [
        Mount(link.path, MountKind.LINK, is_dir=False, target=link.target)
        for link in spec.links
        if not bare.shows_host(posixpath.dirname(link.path)) and link.path not in bare._by_path
    ]
    return MountPlan([*places, *links])


def _base_places(spec: SandboxSpec, host: Host) -> list[Mount]:
    if sys.platform == "darwin":
        return _macos_places(spec, host)
    private = [Mount("/tmp", MountKind.PRIVATE)]
    whole = shows_root(spec)
    if spec.base == "host" or whole:
        homes = _other_homes(spec, host) if whole else host.homes
        hidden = [Mount(path, MountKind.HIDDEN) for path in (*homes, "/run", *host.churning)]
        places = [
            Mount("/", MountKind.SYSTEM),
            *private,
            Mount("/var/tmp", MountKind.PRIVATE),
            *hidden,
        ]
        if host.resolv_conf and spec.network.kind == "inherit":
            # /etc/resolv.conf often leads into /run, which is hidden: names would not resolve.
            places.append(Mount(host.resolv_conf, MountKind.SYSTEM, is_dir=False))
        return [p for p in places if p.path != "/var/tmp" or recording_fs.isdir("/var/tmp")]
    system = [
        Mount(path, MountKind.LINK, is_dir=False, target=target)
        if target
        else Mount(path, MountKind.SYSTEM)
        for path, target in host.system
    ]
    var_tmp = Mount("/var/tmp", MountKind.LINK, is_dir=False, target="/tmp")
    if any(g.path == "/var" or is_below(g.path, "/var/tmp") for g in spec.grants):
        # No link can be made in the host's folder, and nothing can be mounted behind one.
        var_tmp = Mount("/var/tmp", MountKind.PRIVATE)
    return [
        Mount("/", MountKind.ROOT),
        *private,
        var_tmp,
        *system,
        Mount("/etc", MountKind.CURATED),
    ]


def _macos_places(spec: SandboxSpec, host: Host) -> list[Mount]:
    """Nothing is mounted there; these are the rules of the profile, for who asks what shows."""
    if spec.base == "host" or shows_root(spec):
        hidden = dict.fromkeys((*system_dirs_macos.HIDDEN_FROM_HOST, *host.homes))
        shown = [Mount("/", MountKind.SYSTEM)]
        if shows_root(spec) and host.own_home:
            hidden.pop(host.own_home, None)
            shown.append(Mount(host.own_home, MountKind.SYSTEM))
    else:
        hidden = dict.fromkeys(system_dirs_macos.SYSTEM_SECRETS)
        system = [Mount(path, MountKind.SYSTEM) for path in system_dirs_macos.PROGRAMS]
        shown = [Mount("/", MountKind.ROOT), *system]
    return [*shown, *(Mount(path, MountKind.HIDDEN) for path in hidden)]


def _other_homes(spec: SandboxSpec, host: Host) -> tuple[str, ...]:
    """Naming / shows the own home folder, with secrets masked. Nothing can be mounted in those of
    others: bwrap may not enter them."""
    if spec.run_as is not None or not host.own_home:
        return host.homes
    own = [one for one in (host.own_home, host.variable_home) if one]
    return tuple(h for h in host.homes if not any(within(one, h) for one in own))


def shows_root(spec: SandboxSpec) -> bool:
    """Whether a caller allowed the whole machine by naming /."""
    return any(grant.path == "/" for grant in spec.grants)


def _name_places(spec: SandboxSpec, host: Host) -> list[Mount]:
    """With allow_hosts, names are resolved through the sandbox's own files."""
    if spec.network.kind != "allow_hosts" or sys.platform == "darwin":
        return []  # on macOS names are the proxy's business
    files = host.name_files
    if spec.base == "minimal" and not any(grant.path in ("/", "/etc") for grant in spec.grants):
        files = tuple((f"/etc/{name}", name) for name in NAME_FILES)
    return [Mount(path, MountKind.CURATED, is_dir=False, target=name) for path, name in files]


def _grant_places(spec: SandboxSpec) -> list[Mount]:
    kinds = {"read": MountKind.READ, "write": MountKind.WRITE}
    writes = {grant.path for grant in spec.grants if grant.access == "write"}
    places = [
        Mount(g.path, kinds[g.access], g.identity.is_dir, grant=g)
        for g in spec.grants
        # A path in both lists is writable: both lists say what is allowed.
        if g.access == "write" or g.path not in writes
    ]
    return places + [
        Mount(p.path, MountKind.PROTECTED, p.is_dir) for p in spec.protected if p.present
    ]


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")
