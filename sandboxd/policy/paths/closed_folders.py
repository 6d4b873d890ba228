"""Folders that the daemon may not look into, and that a command could open again.

What lies in there cannot be found, so it cannot be masked or protected by itself: the folder is, as
a whole. A folder of another user stays closed to a command, too.
"""

from __future__ import annotations

import os
import posixpath
import sys

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
