"""A folder for the temporary files of one sandbox, where /tmp itself cannot be made private.

It lies in the system's folder for temporary files and not in the daemon's own: a command of another
user than the daemon's must be able to walk to it. It is locked while it is in use, so that those of
a daemon that was killed can be told apart and removed by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time

from sandboxd.policy.plan import RunAs

PREFIX = "sandboxd-tmp-"
# A folder is made first and locked then: one as young as this may be somebody's new one.
YOUNG_S = 60.0


class PrivateFolder:
    def __init__(self, run_as: RunAs | None) -> None:
        self.path = os.path.realpath(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if run_as is not None:
            os.fchown(self._lock, run_as.uid, run_as.gid)

    def remove(self) -> None:
        """For when nothing of the sandbox is alive."""
        _remove(self.path)
        os.close(self._lock)


def remove_stale() -> None:
    """What daemons left behind that were killed; root's also served other users."""
    with os.scandir(tempfile.gettempdir()) as found:
        old = [entry.path for entry in found if entry.name.startswith(PREFIX) and _is_ours(entry)]
    for path in old:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
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


def _remove(path: str) -> None:
    """A folder that was closed to its owner goes too; nothing is closed to root."""
    shutil.rmtree(path, ignore_errors=True)
    if os.getuid() == 0 or not os.path.lexists(path):
        return
    for folder, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(folder, name)
            if not os.path.islink(inner):
                os.chmod(inner, 0o700)
    shutil.rmtree(path, ignore_errors=True)
