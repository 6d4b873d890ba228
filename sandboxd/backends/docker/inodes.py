"""Which inode must be found at each place in a container, before any command runs there.

The engine binds by name, and may see other files than we do. A name is looked at once: what it
leads to by the next look may be another file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from sandboxd.backends.docker.mounts import Bind, Mount
from sandboxd.linux import init_wire as wire
from sandboxd.linux.openat import changed, open_checked, open_path


def inode_checks(mounts: Sequence[Mount]) -> list[wire.Check]:
    """PathDenied when a source is not what was planned, or a symlink has come into its way."""
    found: list[wire.Check] = []
    for mount in mounts:
        if isinstance(mount, Bind) and mount.checked:
            status = _status(mount)
            found.append(wire.Check(path=mount.dest, device=status.st_dev, inode=status.st_ino))
    return found


def _status(mount: Bind) -> os.stat_result:
    fd = _opened(mount)
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    if stat.S_ISLNK(status.st_mode):
        raise changed(mount.source, "it is a symlink")
    return status


def _opened(mount: Bind) -> int:
    if mount.identity is not None:
        return open_checked(mount.source, mount.identity)
    try:
        return open_path(mount.source)
    except OSError as error:
        raise changed(mount.source, os.strerror(error.errno or 0)) from None
