"""The status of a path: what the plan mounts there, and what the host has there."""

from __future__ import annotations

import posixpath

import msgspec

from sandboxd.denials.context import Setting
from sandboxd.policy.mounts.mount_plan import HOST_CONTENT, WRITABLE, Mount, MountKind
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.plan import Protected

_OWN = frozenset({MountKind.PRIVATE, MountKind.PROC, MountKind.DEV})


class PathStatus(msgspec.Struct, frozen=True):
    """`path` is canonical; `visible`: something is there inside, the host's own or a folder."""

    path: str
    place: Mount
    visible: bool
    writable: bool
    on_host: bool
    parent_on_host: bool
    grandparent_on_host: bool
    protected: Protected | None

    @property
    def masked(self) -> bool:
        return self.place.kind == MountKind.MASK

    @property
    def plausible(self) -> bool:
        """It exists on the host, or could have been created there."""
        return self.on_host or self.parent_on_host

    @property
    def hidden(self) -> bool:
        """The host has it, and the sandbox does not show it."""
        return (
            self.on_host
            and not self.visible
            and self.place.kind not in {MountKind.PROC, MountKind.DEV}
        )


def resolve(setting: Setting, name: str, folders: tuple[str, ...]) -> list[str]:
    """Absolute spellings of `name`: itself, or in each folder that the command may be in."""
    if "\0" in name:
        return []
    if posixpath.isabs(name):
        return [posixpath.normpath(name).replace("//", "/", 1)]
    if not name or name.startswith(("-", "~", "$")):
        return []
    cwd = setting.working_directory
    first = () if "." in folders and name not in folders else (cwd,)
    bases = [*first, *(posixpath.join(cwd, folder) for folder in folders)]
    return list(dict.fromkeys(posixpath.normpath(posixpath.join(base, name)) for base in bases))


def path_statuses(setting: Setting, path: str) -> list[PathStatus]:
    """`path` (absolute, normal) itself and, where it is a link on the host, what it leads to."""
    path = _follow(setting, path)
    paths = [path]
    if setting.layout.at(path).kind not in _OWN:
        paths.append(setting.host.canonical(path))
    return [_status_of(setting, one) for one in dict.fromkeys(paths)]


def _status_of(setting: Setting, path: str) -> PathStatus:
    layout, host = setting.layout, setting.host
    place = layout.at(path)
    return PathStatus(
        path=path,
        place=place,
        visible=_visible(setting, place, path),
        writable=layout.writable(path),
        on_host=host.exists(path),
        parent_on_host=path != "/" and host.exists(posixpath.dirname(path)),
        grandparent_on_host=path.count("/") > 2
        and host.exists(posixpath.dirname(posixpath.dirname(path))),
        protected=_protected(setting, path),
    )


def _visible(setting: Setting, place: Mount, path: str) -> bool:
    if place.kind in HOST_CONTENT:
        return True
    if not setting.mounts and setting.platform == "linux":
        return False  # the folder is the host's, and Landlock does not let it be read
    # Inside a private folder nothing is the host's; the folder itself is there.
    return place.path == path if place.kind in _OWN else setting.layout.exists(path)


def _follow(setting: Setting, path: str) -> str:
    """Links of the layout, and the host's links in the folders above; not the last component."""
    for _ in range(8):
        place = setting.layout.at(path)
        if place.kind != MountKind.LINK:
            break
        rest = path[len(place.path) :].lstrip("/")
        target = posixpath.join(posixpath.dirname(place.path), place.target)
        path = (
            posixpath.normpath(posixpath.join(target, rest)) if rest else posixpath.normpath(target)
        )
    if setting.layout.at(path).kind in _OWN:
        return path
    folder, name = posixpath.split(path)
    return posixpath.join(setting.host.canonical(folder), name) if name else path


def _protected(setting: Setting, path: str) -> Protected | None:
    """The protected path that `path` is, lies in, or (as a mount point above it) keeps in place."""
    for one in setting.plan.sandbox.protected:
        if not one.present and one.rule != "absent":
            continue  # it may change: its content is checked after the run
        if within(path, one.path):
            return one
    return None


def read_only_somewhere(setting: Setting) -> bool:
    """Whether the plan keeps any place of the host from being written."""
    ours = {MountKind.LINK, MountKind.PROC, MountKind.DEV}
    return any(p.kind not in WRITABLE and p.kind not in ours for p in setting.layout.places)


def held_in_place(setting: Setting, path: str) -> Protected | None:
    """The protected path that makes `path` a mount point: renaming it answers EBUSY."""
    for one in setting.plan.sandbox.protected:
        if is_below(path, one.root) and within(one.path, path):
            return one
    return None
