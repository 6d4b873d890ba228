"""How a path is kept as it is: mounted read-only if it is there, watched otherwise.

A symlink cannot be a mount point. Whatever leads to a kept path, or from a kept folder elsewhere,
decides what the host runs as much as the path itself: each link is watched, and what it leads to
is kept too.
"""

from __future__ import annotations

import posixpath
import stat
import time
from collections import deque
from collections.abc import Iterable

from sandboxd.platform.current import files
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.closed_folders import closed_folder
from sandboxd.policy.paths.symlink_walk import Walk
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.plan import Protected
from sandboxd.policy.protected import bounded_work, staying

_STAYS_S = 1.0  # a plan that took a folder for missing is made again then
_LONGEST = 4096  # the kernel follows no longer path
# From a folder by links in it to another folder, and on by links in that one.
LEVELS = 3
_MOST_FOLDERS, _MOST_LINKS = 64, 256  # in one kept folder
_SKIPPED = frozenset(("node_modules", "site-packages", ".venv", "venv"))


def kept(path: str, root: str) -> list[Protected]:
    """How `path` below `root`, without links in it, is kept."""
    return kept_in(posixpath.dirname(path), [posixpath.basename(path)], root)


def kept_in(folder: str, names: Iterable[str], root: str, levels: int = 0) -> list[Protected]:
    """The same for several names in one folder, which is resolved once.

    `levels`: how far links in kept folders are followed.
    """
    parent = recording_fs.realpath(folder)
    if not within(parent, root):
        return []  # it leads out of what is writable
    found: list[Protected] = []
    plain = {"": True}  # whether no link is on the way to a name with slashes in it
    for name in names:
        path = f"{parent}/{name}"
        inner = posixpath.dirname(name)
        if inner not in plain:
            middle = f"{parent}/{inner}"
            plain[inner] = recording_fs.realpath(middle) == middle
            plain[inner] &= not recording_fs.islink(middle)  # to itself
        found += _kept(path, root, levels) if plain[inner] else followed(path, root, levels)
    return found


def followed(path: str, root: str, levels: int = 0) -> list[Protected]:
    """The same for a path as a setting spells it: from anywhere, with `..`, through links."""
    if len(path) > _LONGEST:
        return []
    start = root if is_below(path, root) else "/"
    way = Walk(path[len(start) :].lstrip("/"), _read_link, start=start)
    found: list[Protected] = []
    for step in way:
        bounded_work.count(bounded_work.PATHS)
        at = step.path
        if step.target is not None:
            found += [Protected(at, root, present=False)] if is_below(at, root) else []
        elif recording_fs.islink(at):
            return found  # they lead round
        elif not step.is_last and recording_fs.lexists(at):
            continue
        elif ".." in way.rest:
            # What is made there decides where that leads.
            found += _kept(at, root, 0) if is_below(at, root) else []
        else:
            way.at = posixpath.join(at, *way.rest)
            break
    if not is_below(way.at, root):
        return found + _from(way.at, root, levels)
    folder, name = posixpath.split(way.at)
    return found + kept_in(folder, [name], root, levels)


def links_to(path: str, root: str) -> list[Protected]:
    """The links only that such a path leads through."""
    return [one for one in followed(path, root) if recording_fs.islink(one.path)]


def _kept(path: str, root: str, levels: int) -> list[Protected]:
    bounded_work.count(bounded_work.PATHS)
    try:
        mode = recording_fs.lstat(path).st_mode
    except PermissionError:
        closed = closed_folder(path)
        if closed is not None and is_below(closed, root):
            return [Protected(closed, root, present=True, is_dir=True)]
        return [Protected(path, root, present=False)]
    except OSError:
        return [Protected(path, root, present=False)]
    if stat.S_ISDIR(mode) and staying.has(path):
        recording_fs.holds_until(time.monotonic() + _STAYS_S)
        return [Protected(path, root, present=False)]
    bounded_work.count(bounded_work.MOUNTS)
    if stat.S_ISLNK(mode):
        return followed(path, root, levels)
    found = [Protected(path, root, present=True, is_dir=stat.S_ISDIR(mode))]
    return found + (_from(path, root, levels) if stat.S_ISDIR(mode) else [])


def _from(folder: str, root: str, levels: int) -> list[Protected]:
    """What links in a folder, which stays as it is, lead to elsewhere in `root`."""
    if levels == 0 or within(root, folder):
        return []
    return [
        one
        for link in _links_in(folder)
        for one in followed(link, root, levels - 1)
        if not within(one.path, folder) and not within(folder, one.path)
    ]


def _links_in(folder: str) -> list[str]:
    found: list[str] = []
    pending = deque([folder])
    for _ in range(_MOST_FOLDERS):
        if not pending or len(found) >= _MOST_LINKS:
            break
        for entry in _entries(pending.popleft()):
            if entry.is_symlink():
                found.append(entry.path)
            elif entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED:
                pending.append(entry.path)
    return sorted(found[:_MOST_LINKS])


def _entries(folder: str) -> list[files.DirEntry]:
    try:
        return recording_fs.entries(folder)
    except OSError:
        return []


def _read_link(path: str) -> str | None:
    return recording_fs.readlink(path) if recording_fs.islink(path) else None
