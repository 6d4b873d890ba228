"""The inode that each path in a container must have before any command runs.

The engine binds by name, and may see other files than the daemon. Each name is resolved once,
because a second lookup could find another file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from sandboxd.backends.docker.mounts import ContainerBind, ContainerMount
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.openat import changed_error, open_checked


def inode_checks(mounts: Sequence[ContainerMount]) -> list[wire.Check]:
    """PathDenied if a source is not the planned inode, or a symlink is in its path."""
    found: list[wire.Check] = []
    for mount in mounts:
        if isinstance(mount, ContainerBind) and mount.checked:
            status = _status(mount)
            found.append(wire.Check(path=mount.dest, device=status.st_dev, inode=status.st_ino))
    return found


def _status(mount: ContainerBind) -> os.stat_result:
    fd = open_checked(mount.source, mount.identity)
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    if stat.S_ISLNK(status.st_mode):
        raise changed_error(mount.source, "it is a symlink")
    return status
