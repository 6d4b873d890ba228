"""Which host paths read as empty inside: what the manifest denies, secrets, the daemon's own.

There are two strengths. Paths that the manifest or the config denies, and the daemon's own, are
always masked. A default mask is lifted by a caller that allows exactly that path. Allowing a folder
above does not lift it, and allowing a path below shows that path only (the deeper mount decides,
see mount_plan.py).
"""

from __future__ import annotations

import os
import posixpath
import stat
import sys
from collections.abc import Iterable, Iterator
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from sandboxd.config.setting_words import setting_words
from sandboxd.platform.current import files
from sandboxd.policy.data.system_dirs import PROGRAMS
from sandboxd.policy.display_names import named
from sandboxd.policy.mounts import mask_memory, secret_paths
from sandboxd.policy.mounts.mount_plan import HOST_CONTENT, MountPlan, mount_plan
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.canonical import Resolved
from sandboxd.policy.paths.closed_folders import closed_folder, closed_to
from sandboxd.policy.paths.homes import expand, home_of, homes
from sandboxd.policy.paths.recording import list_entries
from sandboxd.policy.paths.within import is_below, within, within_any
from sandboxd.policy.plan import Grant, Mask, SandboxSpec
from sandboxd_proto.errors import CeilingExceeded, PathDenied

if TYPE_CHECKING:
    from sandboxd.policy.request import Machine

_MOST_LINKS = 128  # in one secret folder, with the folders in it


class Masks(NamedTuple):
    masks: tuple[Mask, ...]
    warnings: tuple[str, ...]
    spelled: tuple[str, ...]  # the names of default masks that show, or lead to what shows


def masks_for(
    spec: SandboxSpec,
    denied: list[Resolved],
    machine: Machine,
    home: str | None = None,
    denied_before: Iterable[str] = (),
) -> Masks:
    """Only what exists and shows is masked: masking a missing path would create it on the host.

    `home`: that of the request's variables. `denied_before`: where links that the manifest denies
    led to earlier.
    """
    asked = [grant for grant in spec.grants if grant.origin == "caller"]
    configured = config_masks(machine)
    _refuse_configured(asked, configured)
    places = mount_plan(spec, machine.host)
    wanted = {d.path: d.identity.is_dir for d in denied}
    caches = recording_fs.realpath(machine.caches_root)
    strong = [*configured, *denied_before, *machine.own.hidden, caches]
    _add(wanted, [_mountable(path, spec, machine, places) for path in strong], places)
    lifted = {grant.path for grant in asked if grant.by_name}
    links = _LinkSearch()
    found = _defaults(spec, machine, places, _own_homes(spec, machine, home), links)
    defaults = [path for path in found if path not in lifted]
    _refuse_by_link(asked, defaults)
    _add(wanted, [_mountable(path, spec, machine, places) for path in defaults], places)
    _refuse_other_spellings(wanted)
    masks = tuple(sorted(Mask(path, is_dir) for path, is_dir in wanted.items()))
    crowded = tuple(map(_too_crowded, links.crowded[:1]))
    return Masks(masks, crowded, tuple(_showing(links.spelled, places, lifted)))


def _showing(spelled: Iterable[str], places: MountPlan, lifted: set[str]) -> Iterator[str]:
    for path in spelled:
        end = recording_fs.realpath(path)
        if end not in lifted and (places.shows_host(path) or places.shows_host(end)):
            yield path


def absent_secrets(spec: SandboxSpec, machine: Machine) -> tuple[str, ...]:
    """Masks of which only the path's absence keeps the content from the command.

    They would be visible as soon as they are created. Only the home folders of the daemon's
    user and of the command's user count; most plans show neither.
    """
    places = mount_plan(spec, machine.host)
    lifted = {grant.path for grant in spec.grants if grant.origin == "caller" and grant.by_name}
    people = _own_homes(spec, machine)
    shown = [home for home in sorted(people) if spec.grants and _shows_some(home, places)]
    paths = [*config_masks(machine)]
    paths += [f"{home}/{name}" for home in shown for name in secret_paths.HOME]
    return tuple(
        path for path in paths
        if places.shows_host(path) and path not in lifted and not recording_fs.lexists(path)
    )  # fmt: skip


def _own_homes(spec: SandboxSpec, machine: Machine, asked: str | None = None) -> set[str]:
    """Canonical: of the daemon's user, of the command's, and the one that a request names. The last
    only adds masks, and is none where commands write: they have a home of their own there."""
    found = [*machine.own_homes, (home_of(spec.run_as.uid) if spec.run_as else None) or ""]
    if asked is not None and posixpath.isabs(asked) and recording_fs.isdir(asked):
        real = recording_fs.realpath(asked)
        if not within_any(real, [g.path for g in spec.grants if g.access == "write"]):
            found.append(real)
    return {recording_fs.realpath(home) for home in found if home} - {"/"}


def _shows_some(home: str, places: MountPlan) -> bool:
    if places.shows_host(home):
        return True
    return any(is_below(p.path, home) and p.kind in HOST_CONTENT for p in places.places)


def config_masks(machine: Machine) -> dict[str, str]:
    """`[masks] add`: canonical → as it is written. Also where links in it led to earlier."""
    return {
        end: written
        for path, written in config_spellings(machine).items()
        for end in mask_memory.ends(path)
    }


def config_spellings(machine: Machine) -> dict[str, str]:
    """The same without following links."""
    added = machine.config.masks.add
    return {path: written for written in added for path in expand(written, machine.own_homes)}


def _refuse_configured(asked: Iterable[Grant], configured: dict[str, str]) -> None:
    for grant in asked:
        for path, written in configured.items():
            if within(grant.path, path):
                line, says, change = setting_words("masks.add", [written])
                raise CeilingExceeded(
                    f"{grant.path} is hidden by this daemon's config",
                    field="fs_write_allow" if grant.access == "write" else "fs_read_allow",
                    remedy=f"{says}. Leave the path out, or {change}",
                    config_line=line,
                )


def _refuse_by_link(asked: Iterable[Grant], masked: list[str]) -> None:
    """PathDenied if a link that a command could have made leads to a secret."""
    for grant in asked:
        if not grant.by_name and within_any(grant.path, masked):
            raise PathDenied(
                f"a symlink that a sandboxed command could have made leads to {grant.path}, which "
                "is hidden by default",
                field="fs_write_allow" if grant.access == "write" else "fs_read_allow",
                remedy="leave the link out of the request",
            )


def _refuse_other_spellings(masked: Iterable[str]) -> None:
    """PathDenied where the file system ignores case: a mount may cover one spelling only."""
    for path in masked if sys.platform == "linux" else ():
        folder, name = posixpath.split(path)
        other = posixpath.join(folder, name.swapcase())
        if other == path or not recording_fs.lexists(other):
            continue
        if name.swapcase() not in recording_fs.listdir(folder):
            raise PathDenied(
                f"{path} cannot be hidden: its file system ignores case, and shows it by other "
                "spellings of its name",
                remedy="allow folders that do not contain it",
            )


def _add(wanted: dict[str, bool], paths: Iterable[str], places: MountPlan) -> None:
    for path in paths:
        if path in wanted or not places.shows_host(path) or _covered(path, wanted, places):
            continue
        try:
            wanted[path] = stat.S_ISDIR(recording_fs.lstat(path).st_mode)
        except PermissionError:
            _add_closed(wanted, path, places)
        except OSError:
            continue


def _add_closed(wanted: dict[str, bool], path: str, places: MountPlan) -> None:
    """PathDenied where what must be masked lies in a granted folder that cannot be looked into."""
    folder = closed_folder(path)
    if folder is None or not places.shows_host(folder) or _covered(folder, wanted, places):
        return
    if places.at(folder).path == folder:
        raise PathDenied(
            f"{folder} cannot be looked into, so what has to be hidden in it cannot be found",
            remedy=f"open it again: chmod u+rwx {quote(folder)}",
        )
    wanted[folder] = True


def _covered(path: str, wanted: dict[str, bool], places: MountPlan) -> bool:
    """Whether a mask above `path`, with nothing allowed in between, hides it already."""
    ruling = places.at(path).path
    at = posixpath.dirname(path)
    while len(at) > len(ruling) or at == ruling:
        if at in wanted:
            return True
        if at == "/":
            break
        at = posixpath.dirname(at)
    return False


def _defaults(
    spec: SandboxSpec, machine: Machine, places: MountPlan, own: set[str], links: _LinkSearch
) -> Iterator[str]:
    """Canonical default masks that may show; a dotfile is often a symlink to where it is kept.

    `own`: homes from whose secrets links may lead into folders that show, although the homes do
    not.
    """
    if spec.base != "host" and not spec.grants:
        return  # most requests: only the host's programs are visible
    granted = [grant.path for grant in spec.grants]
    for path in secret_paths.SYSTEM:
        if (spec.base == "host" or within_any(path, granted)) and _readable(path, machine.uid):
            links.spelled.append(path)
            yield recording_fs.realpath(path)
    people = homes(*own)
    for home in people:
        names = {*_names_in(home, places, all_of_them=home in own)}
        for name in secret_paths.HOME:
            path = f"{home}/{name}"
            known = mask_memory.is_known(path)
            if not known and name not in names:
                continue
            if not known and not recording_fs.lexists(path) and closed_folder(path) is None:
                continue
            levels = 2 if name in secret_paths.LINKS_IN_FOLDERS else 1
            links.spelled.append(path)
            for real in mask_memory.ends(path):
                yield real
                for end in links.ends(real, levels):
                    if not any(within(one, end) for one in people) and _is_content(end, places):
                        yield end


def _is_content(path: str, places: MountPlan) -> bool:
    """Not a program, of the host or of a toolchain."""
    grant = places.at(path).grant
    return not within_any(path, PROGRAMS) and (grant is None or grant.origin == "caller")


class _LinkSearch:
    """Where symlinks in secret folders lead. `crowded`: folders in which not all were followed.
    `spelled`: the secrets, and these symlinks."""

    def __init__(self) -> None:
        self.crowded: list[str] = []
        self.spelled: list[str] = []

    def ends(self, secret: str, levels: int) -> Iterator[str]:
        """`levels`: 2 for the links in folders of this folder, too. Each secret has a bound of its
        own: where a command can make one, it keeps no links of others from being followed."""
        pending = [(secret, levels)]
        left = _MOST_LINKS
        while pending:
            folder, level = pending.pop()
            links, folders = recording_fs.extract(folder, _links_and_folders)
            inner = folders if level > 1 else ()
            left -= len(links) + len(inner)
            if left < 0:
                self.crowded.append(secret)
                return
            paths = [f"{folder}/{name}" for name in links]
            self.spelled += paths
            yield from map(recording_fs.realpath, paths)
            pending += [(f"{folder}/{name}", level - 1) for name in inner]


def _links_and_folders(folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of both in a folder, of each no more than it takes to be too many."""
    try:
        entries = list_entries(folder)
    except OSError:  # a file, or closed
        return (), ()
    links = sorted(e.name for e in entries if e.is_symlink())
    folders = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    return tuple(links[: _MOST_LINKS + 1]), tuple(folders[: _MOST_LINKS + 1])


def _too_crowded(folder: str) -> str:
    return (
        f"{named(folder)} has too many symlinks and folders to look at all of them: what they lead "
        "to is not hidden in the folders that you allow"
    )


def _mountable(path: str, spec: SandboxSpec, machine: Machine, places: MountPlan) -> str:
    """The path, or the highest folder above it that the command of a root daemon could not enter:
    nothing can be mounted in there, so that folder is masked whole. Not one above the mount that
    shows the path: that would show it still."""
    if machine.uid != 0:
        return path
    uid, gid = (spec.run_as.uid, spec.run_as.gid) if spec.run_as else (0, 0)
    closed, shown_by = closed_to(path, uid, gid), places.at(path).path
    if closed is not None and not within(closed, shown_by):
        closed = closed_to(path, uid, gid, below=shown_by)
    return closed or path


def _names_in(home: str, places: MountPlan, *, all_of_them: bool) -> Iterable[str]:
    """The secrets of a home folder that could show. Most requests show a few folders of it."""
    shows = all_of_them or places.shows_host(home)
    skip = len(home) + 1
    exact = {p.path[skip:] for p in places.places if is_below(p.path, home)}
    entries = _entries(home)
    if entries is None:  # it can perhaps be entered, but not listed
        return secret_paths.HOME if shows or exact else ()
    if shows:
        present = {entry.name for entry in entries}
        return [name for name in secret_paths.HOME if name.partition("/")[0] in present]
    # What a symlink leads to may show although the home folder does not.
    exact.update(e.name for e in entries if e.is_symlink())
    config = _entries(f"{home}/.config") or ()
    exact.update(f".config/{e.name}" for e in config if e.is_symlink())
    above = tuple(f"{name}/" for name in exact)
    if not exact:
        return ()
    return [name for name in secret_paths.HOME if name in exact or name.startswith(above)]


def _entries(folder: str) -> list[files.DirEntry] | None:
    try:
        return recording_fs.entries(folder)
    except OSError:
        return None


def _readable(path: str, uid: int) -> bool:
    """Paths that this user cannot read need no mount, and each mount costs time."""
    return recording_fs.lexists(path) and (
        uid == 0 or any(recording_fs.access(path, mode) for mode in (os.R_OK, os.W_OK, os.X_OK))
    )
