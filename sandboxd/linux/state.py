"""The daemon's private folder of what is mounted into sandboxes: empties and /etc copies."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile


class StateFolder:
    """Made anew for each daemon, removed when it ends. Contents are world-readable.

    A daemon of root mounts from it into sandboxes of other users, and bwrap turns a descriptor
    back into a name, which those users must be able to walk to: root's is below /run, not in the
    closed folder of the socket.
    """

    def __init__(self, path: str | None = None) -> None:
        """`path`: the daemon holds the lock beside it, so what is there is a dead daemon's."""
        if path is None:
            self.path = tempfile.mkdtemp(prefix="sandboxd-state-")
        else:
            self.path = _walkable(path) if os.getuid() == 0 else path
            shutil.rmtree(self.path, ignore_errors=True)
            os.mkdir(self.path, 0o700)
        if os.getuid() == 0:
            os.chmod(self.path, 0o711)
        self.empty_file = os.path.join(self.path, "empty-file")
        self.empty_dir = os.path.join(self.path, "empty-dir")
        with open(self.empty_file, "wb"):
            os.chmod(self.empty_file, 0o444)
        os.mkdir(self.empty_dir)
        os.chmod(self.empty_dir, 0o555)

    def folder(self, name: str) -> str:
        path = os.path.join(self.path, name)
        os.makedirs(path, mode=0o755, exist_ok=True)
        os.chmod(path, 0o755)
        return path

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _walkable(path: str) -> str:
    """Where a daemon of root keeps what would be at `path`; only root can make names in /run."""
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return f"/run/sandboxd-state-{name}" if os.path.isdir("/run") else path
