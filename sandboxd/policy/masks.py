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

from sandboxd.policy import hostfs, secrets
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
    strong = [*configured.values(), *machine.own.hidden, hostfs.realpath(machine.caches_root)]
    _add(wanted, strong, places)
    lifted = {grant.path for grant in asked}
    _add(wanted, (p for p in _defaults(spec, machine, places) if p not in lifted), places)
    return tuple(sorted(Mask(path, is_dir) for path, is_dir in wanted.items()))


def config_masks(machine: Machine) -> dict[str, str]:
    """`[masks] add`: as it is written → canonical. A relative path is meant in the home folder."""
    found: dict[str, str] = {}
    for written in machine.config.masks.add:
        below = written[2:] if written.startswith("~/") else "" if written == "~" else written
        found[written] = hostfs.realpath(os.path.join(machine.home, below))
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
            wanted[path] = stat.S_ISDIR(hostfs.lstat(path).st_mode)
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
    if spec.base != "host" and not spec.grants:
        return  # most requests; nothing of the host but its programs shows
    granted = [grant.path for grant in spec.grants]
    for path in _SYSTEM:
        if (spec.base == "host" or hidden_from(path, granted)) and _readable(path, machine.uid):
            yield hostfs.realpath(path)
    own = home_of(spec.run_as.uid) if spec.run_as else None
    for home in homes(machine.home, own or machine.home):
        for name in _names_in(home, places):
            path = f"{home}/{name}"
            if hostfs.lexists(path):
                yield hostfs.realpath(path)


def _names_in(home: str, places: Layout) -> Iterable[str]:
    """The secrets of a home folder that could show. Most requests show a few folders of it."""
    shows = places.shows_host(home)
    skip = len(home) + 1
    exact = {p.path[skip:] for p in places.places if p.path.startswith(f"{home}/")}
    entries = _entries(home)
    if entries is None:  # it can perhaps be entered, but not listed
        return _HOME if shows or exact else ()
    if shows:
        present = {entry.name for entry in entries}
        return [name for name in _HOME if name.partition("/")[0] in present]
    # What a symlink leads to may show although the home folder does not.
    exact.update(e.name for e in entries if e.is_symlink())
    config = _entries(f"{home}/.config") or ()
    exact.update(f".config/{e.name}" for e in config if e.is_symlink())
    above = tuple(f"{name}/" for name in exact)
    return [name for name in _HOME if name in exact or name.startswith(above)] if exact else ()


def _entries(folder: str) -> list[os.DirEntry[str]] | None:
    try:
        return hostfs.entries(folder)
    except OSError:
        return None


def _readable(path: str, uid: int) -> bool:
    """What the kernel keeps from this user anyway needs no mount, and each mount costs time."""
    return hostfs.lexists(path) and (
        uid == 0 or any(hostfs.access(path, mode) for mode in (os.R_OK, os.W_OK, os.X_OK))
    )
