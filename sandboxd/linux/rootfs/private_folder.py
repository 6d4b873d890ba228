"""A folder for the temporary files of one sandbox, where /tmp itself cannot be made private.

It lies in the system's folder for temporary files and not in the daemon's own: a command of another
user must be able to reach it. It is locked while it is in use, so that the next daemon can
recognise and remove the folders of a killed one.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time

from sandboxd.linux.removal import remove_tree
from sandboxd.policy.plan import RunAs

PREFIX = "sandboxd-tmp-"
# A new folder is locked a moment after it is made: a young one may be in use.
YOUNG_S = 60.0


class PrivateFolder:
    def __init__(self, run_as: RunAs | None) -> None:
        self.path = os.path.realpath(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if run_as is not None:
            os.fchown(self._lock, run_as.uid, run_as.gid)

    def remove(self) -> None:
        """To be called when no process of the sandbox is alive."""
        remove_tree(self.path)
        os.close(self._lock)


def remove_stale() -> None:
    """Remove folders of killed daemons; those of root also belong to other users."""
    try:
        with os.scandir(tempfile.gettempdir()) as found:
            old = [e.path for e in found if e.name.startswith(PREFIX) and _is_ours(e)]
    except OSError:
        return
    for path in old:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(path)
        except OSError:
            continue  # in use
        finally:
            os.close(fd)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    aged = time.time() - status.st_ctime > YOUNG_S
    return aged and os.getuid() in (0, status.st_uid)
