"""The daemon's private folder of mount sources: empty files and /etc copies."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile

from sandboxd.linux.removal import remove_tree


class StateFolder:
    """Made by each daemon, removed when it ends. Contents are world-readable.

    A daemon of root mounts from it into sandboxes of other users. bwrap turns a descriptor back
    into a path, which those users must be able to reach: root's folder is below /run, not in the
    private folder of the socket.
    """

    def __init__(self, path: str | None = None) -> None:
        """The daemon holds the lock beside `path`, so existing files belong to a dead daemon."""
        if path is None:
            self.path = tempfile.mkdtemp(prefix="sandboxd-state-")
        else:
            self.path = _made(_walkable(path) if os.getuid() == 0 else path)
        if os.getuid() == 0:
            os.chmod(self.path, 0o711)
        self._lock = _locked(self.path)
        self.empty_file = os.path.join(self.path, "empty-file")
        self.empty_dir = os.path.join(self.path, "empty-dir")
        os.close(os.open(self.empty_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
        os.chmod(self.empty_file, 0o444)
        os.mkdir(self.empty_dir)
        os.chmod(self.empty_dir, 0o555)

    def folder(self, name: str) -> str:
        path = os.path.join(self.path, name)
        os.makedirs(path, mode=0o755, exist_ok=True)
        os.chmod(path, 0o755)
        return path

    def close(self) -> None:
        remove_tree(self.path)
        os.close(self._lock)


def _made(path: str) -> str:
    """A new folder at `path`, or beside it if an existing one cannot be removed."""
    remove_tree(path)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return tempfile.mkdtemp(prefix=f"{os.path.basename(path)}-", dir=os.path.dirname(path))
    return path


def _locked(path: str) -> int:
    """Held while the daemon lives: a folder whose lock is free can be removed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(os.path.join(path, "lock"), flags, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def _walkable(path: str) -> str:
    """The folder below /run that a daemon of root uses instead of `path`."""
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return f"/run/sandboxd-state-{name}" if os.path.isdir("/run") else path
