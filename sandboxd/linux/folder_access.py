"""Who may pass through a folder of the host: its owner, mode and access control list."""

from __future__ import annotations

import os
import time
from functools import lru_cache

from sandboxd.policy.paths.hanging_mounts import HANGING
from sandboxd.policy.paths.recording import Stamp, is_past, name_from, stamp_from

_ACL = "system.posix_acl_access"


def folder_access(path: str) -> tuple[object, ...] | None:
    """None where there is nothing. The list is read again when the folder's ctime has changed, and
    not at all from a file system whose server may not answer."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if HANGING.reached([path]):
        return name_from(found), b""
    stamp = stamp_from(found)
    read = _known_acl if is_past(stamp, time.time_ns()) else _acl
    return name_from(found), read(path, stamp)


def _acl(path: str, stamp: Stamp) -> bytes:
    try:
        return os.getxattr(path, _ACL, follow_symlinks=False)
    except OSError:  # it has none
        return b""


_known_acl = lru_cache(maxsize=1024)(_acl)
