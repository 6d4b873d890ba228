"""Which host paths read as empty inside: what the manifest denies, secrets, the daemon's own.

Three strengths. What the manifest or the config denies, and what is the daemon's own, holds
against everything. A default mask is lifted by a caller who allows exactly that path; allowing a
folder above it does not lift it, and allowing something below it shows that something only (the
deeper place rules, see layout.py).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sandboxd.policy import secrets
from sandboxd.policy.canonical import Resolved
from sandboxd.policy.homes import home_of, homes
from sandboxd.policy.layout import Layout, layout
from sandboxd.policy.plan import Grant, Mask, SandboxSpec
from sandboxd_proto.errors import CeilingExceeded

if TYPE_CHECKING:
    from sandboxd.policy.resolve import Machine

_SYSTEM = tuple(path for group in secrets.SYSTEM for path in group.paths)
_HOME = tuple(path for group in secrets.HOME for path in group.paths)


def masks_for(spec: SandboxSpec, denied: list[Resolved], machine: Machine) -> tuple[Mask, ...]:
    """Only what exists and shows is masked: masking a missing path would create it on the host."""
    asked = [grant for grant in spec.grants if grant.origin == "caller"]
    configured = config_masks(machine)
    _refuse_configured(asked, configured)
    places = layout(spec, machine.host)
    wanted = {d.path: d.identity.is_dir for d in denied}
    strong = [*configured.values(), *machine.own.hidden, os.path.realpath(machine.caches_root)]
    _add(wanted, strong, places)
    lifted = {grant.path for grant in asked}
    _add(wanted, (p for p in _defaults(spec, machine, places) if p not in lifted), places)
    return tuple(sorted(Mask(path, is_dir) for path, is_dir in wanted.items()))


def config_masks(machine: Machine) -> dict[str, str]:
    """`[masks] add`: as it is written → canonical. A relative path is meant in the home folder."""
    found: dict[str, str] = {}
    for written in machine.config.masks.add:
        below = written[2:] if written.startswith("~/") else "" if written == "~" else written
        found[written] = os.path.realpath(os.path.join(machine.home, below))
    return found


def hidden_from(path: str, folders: Iterable[str]) -> bool:
    """Whether `path` is one of `folders` or lies in one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _refuse_configured(asked: Iterable[Grant], configured: dict[str, str]) -> None:
    for grant in asked:
        for written, path in configured.items():
            if hidden_from(grant.path, [path]):
                line = f'[masks] add = ["{written}"]'
                raise CeilingExceeded(
                    f"{grant.path} is hidden by this daemon's config",
                    field="fs_write_allow" if grant.access == "write" else "fs_read_allow",
                    remedy=f"the config says: {line}. Leave the path out, or change that line "
                    "and restart sandboxd",
                    config_line=line,
                )


def _add(wanted: dict[str, bool], paths: Iterable[str], places: Layout) -> None:
    for path in paths:
        if path in wanted or not places.shows_host(path) or _covered(path, wanted, places):
            continue
        try:
            wanted[path] = stat.S_ISDIR(os.lstat(path).st_mode)
        except OSError:
            continue


def _covered(path: str, wanted: dict[str, bool], places: Layout) -> bool:
    """Whether a mask above `path`, with nothing allowed in between, hides it already."""
    ruling = places.at(path).path
    at = os.path.dirname(path)
    while len(at) > len(ruling) or at == ruling:
        if at in wanted:
            return True
        if at == "/":
            break
        at = os.path.dirname(at)
    return False


def _defaults(spec: SandboxSpec, machine: Machine, places: Layout) -> Iterator[str]:
    """Canonical default masks that may show; a dotfile is often a symlink to where it is kept."""
    for path in _SYSTEM:
        if _readable(path, machine.uid):
            yield os.path.realpath(path)
    own = home_of(spec.run_as.uid) if spec.run_as else None
    for home in homes(machine.home, own or machine.home):
        for name in _names_in(home, places):
            path = f"{home}/{name}"
            if os.path.lexists(path):
                yield os.path.realpath(path)


def _names_in(home: str, places: Layout) -> list[str]:
    """The secrets of a home folder that could show. Most requests show a few folders of it."""
    if places.shows_host(home):
        present = {entry.name for entry in _entries(home)}
        return [name for name in _HOME if name.partition("/")[0] in present]
    skip = len(home) + 1
    below = f"{home}/"
    shown = [p.path[skip:] for p in places.places if p.path.startswith(below)]
    if not shown:
        return []
    linked = [e.name for e in _entries(home) if e.is_symlink()]
    linked += [f".config/{e.name}" for e in _entries(f"{home}/.config") if e.is_symlink()]
    exact = {*shown, *linked}
    above = tuple(f"{name}/" for name in exact)
    return [name for name in _HOME if name in exact or name.startswith(above)]


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _readable(path: str, uid: int) -> bool:
    """What the kernel keeps from this user anyway needs no mount, and each mount costs time."""
    return os.path.lexists(path) and (
        uid == 0 or any(os.access(path, mode) for mode in (os.R_OK, os.W_OK, os.X_OK))
    )
