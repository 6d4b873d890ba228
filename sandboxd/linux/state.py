"""The daemon's private folder of what is mounted into sandboxes: empties and /etc copies."""

from __future__ import annotations

import os
import shutil
import tempfile


class StateFolder:
    """Made anew for each daemon, removed when it ends. Contents are world-readable.

    A daemon of root mounts from it into sandboxes of other users, and bwrap turns a descriptor
    back into a name, which those users must be able to walk to: root's is below /run, not in the
    closed folder `parent` of the socket.
    """

    def __init__(self, parent: str | None = None) -> None:
        walkable = os.getuid() == 0 and os.path.isdir("/run")
        prefix = "sandboxd-state-" if walkable else "state-"
        self.path = tempfile.mkdtemp(prefix=prefix, dir="/run" if walkable else parent)
        if walkable:
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
