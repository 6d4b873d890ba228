"""A folder for the temporary files of one sandbox, where /tmp itself cannot be made private.

It lies in the system's folder for temporary files and not in the daemon's own: a command of another
user than the daemon's must be able to walk to it.
"""

from __future__ import annotations

import os
import shutil
import tempfile

from sandboxd.policy.plan import RunAs


def make(run_as: RunAs | None) -> str:
    path = tempfile.mkdtemp(prefix="sandboxd-tmp-")
    if run_as is not None:
        os.chown(path, run_as.uid, run_as.gid)
    return os.path.realpath(path)


def remove(path: str) -> None:
    """For when nothing of the sandbox is alive. A folder that was closed to its owner goes too."""
    shutil.rmtree(path, ignore_errors=True)
    if not os.path.lexists(path):
        return
    for folder, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(folder, name)
            if not os.path.islink(inner):
                os.chmod(inner, 0o700)
    shutil.rmtree(path, ignore_errors=True)
