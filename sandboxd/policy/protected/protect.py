"""Turn a path into protected ones: mounted read-only if it exists, watched otherwise.

A symlink cannot be a mount point. Whatever leads to a kept path, or from a kept folder elsewhere,
decides what the host runs as much as the path itself: each link is watched, and what it leads to
is kept too. So is a file that has another name in the same file system (a hard link): what is
written by that name is judged.
"""

from __future__ import annotations

import posixpath
import stat
import time
from collections import deque
from collections.abc import Iterable
from itertools import islice

from sandboxd.platform.current import files
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.closed_folders import closed_folder
from sandboxd.policy.paths.symlink_walk import Walk
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.plan import Protected
from sandboxd.policy.protected import closed_ways, scan_limits, staying

_STAYS_S = 1.0  # a plan that took a folder for missing is made again then
LONGEST_PATH = 4096  # the kernel follows no longer path
# From a folder by links in it to another folder, and on by links in that one.
LEVELS = 3
_MOST_FOLDERS, _MOST_LINKS = 64, 256  # in one kept folder
_MOST_FILES = 1024  # in one kept folder, that are looked at for another name
_SKIPPED = frozenset(("node_modules", "site-packages", ".venv", "venv"))


def protect(path: str, root: str) -> list[Protected]:
    """How `path` below `root`, without links in it, is kept."""
    return protect_names(posixpath.dirname(path), [posixpath.basename(path)], root)


def protect_names(folder: str, names: Iterable[str], root: str, levels: int = 0) -> list[Protected]:
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
            way = f"{parent}/{inner}"
            plain[inner] = recording_fs.realpath(way) == way and not recording_fs.islink(way)
        found += _kept(path, root, levels) if plain[inner] else protect_target(path, root, levels)
    return found


def protect_target(path: str, root: str, levels: int = 0) -> list[Protected]:
    """The same for a path as a setting spells it: from anywhere, with `..`, through links."""
    if len(path) > LONGEST_PATH:
        return []
    start = root if is_below(path, root) else "/"
    way = Walk(path[len(start) :].lstrip("/"), recording_fs.link_target, start=start)
    found: list[Protected] = []
    for step in way:
        scan_limits.count(scan_limits.PATHS)
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
    return found + protect_names(folder, [name], root, levels)


def links_to(path: str, root: str) -> list[Protected]:
    """The links only that such a path leads through."""
    return [one for one in protect_target(path, root) if recording_fs.islink(one.path)]


def _kept(path: str, root: str, levels: int) -> list[Protected]:
    scan_limits.count(scan_limits.PATHS)
    try:
        mode = recording_fs.lstat(path).st_mode
    except PermissionError:
        closed_ways.refuse(path)
        closed = closed_folder(path)
        if closed is not None and is_below(closed, root):
            return [Protected(closed, root, present=True, is_dir=True)]
        return [Protected(path, root, present=False)]
    except OSError:
        return [Protected(path, root, present=False)]
    if stat.S_ISDIR(mode) and staying.has(path):
        recording_fs.holds_until(time.monotonic() + _STAYS_S)
        return [Protected(path, root, present=False)]
    scan_limits.count(scan_limits.MOUNTS)
    if stat.S_ISLNK(mode):
        return protect_target(path, root, levels)
    found = [Protected(path, root, present=True, is_dir=stat.S_ISDIR(mode))]
    if not stat.S_ISDIR(mode):
        return found + _linked([path], root)
    return found + _from(path, root, levels)


def _from(folder: str, root: str, levels: int) -> list[Protected]:
    """What links in a folder, which stays as it is, lead to elsewhere in `root`, and files in it
    that have another name."""
    if levels == 0 or within(root, folder):
        return []
    links, files_in = _files_in(folder)
    elsewhere = [
        one
        for link in links
        for one in protect_target(link, root, levels - 1)
        if not within(one.path, folder) and not within(folder, one.path)
    ]
    return elsewhere + (_linked(files_in, root) if within(folder, root) else [])


def _files_in(folder: str) -> tuple[list[str], list[str]]:
    """Its symlinks, and other files."""
    links: list[str] = []
    found: list[str] = []
    pending = deque([folder])
    for _ in range(_MOST_FOLDERS):
        if not pending or len(links) >= _MOST_LINKS:
            break
        for entry in _entries(pending.popleft()):
            if entry.is_symlink():
                links.append(entry.path)
            elif not entry.is_dir(follow_symlinks=False):
                found.append(entry.path)
            elif entry.name not in _SKIPPED:
                pending.append(entry.path)
    return sorted(links[:_MOST_LINKS]), sorted(found)


def _linked(paths: Iterable[str], root: str) -> list[Protected]:
    """Those that have another name. Nothing else in a plan rests on that: commands make none."""
    run = (path for path in paths if not path.endswith(".sample"))
    found = [path for path in islice(run, _MOST_FILES) if _is_linked(path)]
    return [Protected(path, root, present=False, rule="linked") for path in found]


def _is_linked(path: str) -> bool:
    try:
        status = files.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _entries(folder: str) -> list[files.DirEntry]:
    try:
        return recording_fs.entries(folder)
    except PermissionError:
        closed_ways.refuse(folder)
        return []
    except OSError:
        return []
