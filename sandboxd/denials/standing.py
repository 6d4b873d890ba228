"""Where a path of a message stands: what the plan makes of it, and what the host has there."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sandboxd.denials.facts import Setting
from sandboxd.policy.layout import HOST_CONTENT, WRITABLE, Kind, Place
from sandboxd.policy.plan import Protected

_OWN = frozenset({Kind.PRIVATE, Kind.PROC, Kind.DEV})


@dataclass(frozen=True, slots=True)
class Standing:
    """`path` is canonical; `visible`: something is there inside, the host's own or a folder."""

    path: str
    place: Place
    visible: bool
    writable: bool
    on_host: bool
    parent_on_host: bool
    grandparent_on_host: bool
    protected: Protected | None

    @property
    def masked(self) -> bool:
        return self.place.kind == Kind.MASK

    @property
    def plausible(self) -> bool:
        """It exists on the host, or could have been created there."""
        return self.on_host or self.parent_on_host

    @property
    def hidden(self) -> bool:
        """The host has it, and the sandbox does not show it."""
        return self.on_host and not self.visible and self.place.kind not in {Kind.PROC, Kind.DEV}


def resolve(setting: Setting, name: str, folders: tuple[str, ...]) -> list[str]:
    """Absolute spellings of `name`: itself, or in each folder that the command may be in."""
    if "\0" in name:
        return []
    if os.path.isabs(name):
        return [os.path.normpath(name).replace("//", "/", 1)]
    if not name or name.startswith(("-", "~", "$")):
        return []
    cwd = setting.working_directory
    bases = [cwd, *(os.path.join(cwd, folder) for folder in folders)]
    return list(dict.fromkeys(os.path.normpath(os.path.join(base, name)) for base in bases))


def standings(setting: Setting, path: str) -> list[Standing]:
    """`path` (absolute, normal) itself and, where it is a link on the host, what it leads to."""
    path = _follow(setting, path)
    paths = [path]
    if setting.layout.at(path).kind not in _OWN:
        paths.append(setting.host.canonical(path))
    return [_standing(setting, one) for one in dict.fromkeys(paths)]


def _standing(setting: Setting, path: str) -> Standing:
    layout, host = setting.layout, setting.host
    place = layout.at(path)
    return Standing(
        path=path,
        place=place,
        visible=_visible(setting, place, path),
        writable=layout.writable(path),
        on_host=host.exists(path),
        parent_on_host=path != "/" and host.exists(os.path.dirname(path)),
        grandparent_on_host=path.count("/") > 2
        and host.exists(os.path.dirname(os.path.dirname(path))),
        protected=_protected(setting, path),
    )


def _visible(setting: Setting, place: Place, path: str) -> bool:
    if place.kind in HOST_CONTENT:
        return True
    # Inside a private folder nothing is the host's; the folder itself is there.
    return place.path == path if place.kind in _OWN else setting.layout.exists(path)


def _follow(setting: Setting, path: str) -> str:
    """Links of the layout, and the host's links in the folders above; not the last component."""
    for _ in range(8):
        place = setting.layout.at(path)
        if place.kind != Kind.LINK:
            break
        rest = path[len(place.path) :].lstrip("/")
        target = os.path.join(os.path.dirname(place.path), place.target)
        path = os.path.normpath(os.path.join(target, rest)) if rest else os.path.normpath(target)
    if setting.layout.at(path).kind in _OWN:
        return path
    folder, name = os.path.split(path)
    return os.path.join(setting.host.canonical(folder), name) if name else path


def _protected(setting: Setting, path: str) -> Protected | None:
    """The protected path that `path` is, lies in, or (as a mount point above it) keeps in place."""
    for one in setting.plan.sandbox.protected:
        if not one.present and one.rule != "absent":
            continue  # it may come and go: its content is judged after the run
        if path == one.path or path.startswith(one.path.rstrip("/") + "/"):
            return one
    return None


def read_only_somewhere(setting: Setting) -> bool:
    """Whether the plan keeps any place of the host from being written."""
    ours = {Kind.LINK, Kind.PROC, Kind.DEV}
    return any(p.kind not in WRITABLE and p.kind not in ours for p in setting.layout.places)


def held_in_place(setting: Setting, path: str) -> Protected | None:
    """The protected path that makes `path` a mount point: renaming it answers EBUSY."""
    for one in setting.plan.sandbox.protected:
        inside_root = path.startswith(one.root.rstrip("/") + "/")
        if inside_root and (one.path == path or one.path.startswith(path.rstrip("/") + "/")):
            return one
    return None
