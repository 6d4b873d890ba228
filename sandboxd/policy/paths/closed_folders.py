"""Folders that the daemon may not look into, and that a command could open again.

What lies in there cannot be found, so it cannot be masked or protected by itself: the folder is, as
a whole. A folder of another user stays closed to a command, too.

A daemon of root looks into every folder, but bwrap and the command have the rights of one user.
"""

from __future__ import annotations

import os
import posixpath
import stat
import sys

from sandboxd.platform.current import system
from sandboxd.policy.paths import recording_fs


def closed_folder(path: str) -> str | None:
    """The one on the way to `path`, if that is why nothing is known of `path`."""
    at = path
    while at not in ("/", ""):
        try:
            recording_fs.lstat(at)
        except PermissionError:
            at = posixpath.dirname(at)
            continue
        except OSError:
            return None
        return at if at != path and can_be_opened(at) else None
    return None


def closing(folder: str, error: OSError) -> str | None:
    """The folder because of which `folder` could not be listed, itself or one above it."""
    if not isinstance(error, PermissionError):
        return None
    return closed_folder(folder) or (folder if can_be_opened(folder) else None)


def can_be_opened(folder: str) -> bool:
    """By a command, which has the daemon's user, or that of the workspace under root's."""
    if sys.platform == "win32":
        return False
    try:
        owner = recording_fs.lstat(folder).st_uid
    except OSError:
        return False
    recording_fs.access(folder, os.X_OK)  # so that a plan ends when the folder is opened
    return os.geteuid() in (0, owner)


def closed_to(path: str, uid: int, gid: int, below: str = "/") -> str | None:
    """The highest folder above `path`, and below `below`, that this user may neither enter nor
    open: nothing can be mounted in there for the user's commands. Access lists are not read."""
    at = below.rstrip("/")
    for name in path[len(at) + 1 :].split("/")[:-1]:
        at = f"{at}/{name}"
        try:
            status = recording_fs.lstat(at)
        except OSError:
            return None
        if status.st_uid != uid and not _lets_through(status, uid, gid):
            return at
    return None


def _lets_through(status: os.stat_result, uid: int, gid: int) -> bool:
    group, others = (bool(status.st_mode & bit) for bit in (stat.S_IXGRP, stat.S_IXOTH))
    if group == others:
        return others
    return group if status.st_gid in system.groups_of(uid, gid) else others
