"""Folders of the daemon that are bound over host folders: they hold only mount points and links.

A mount point inside a bind has to exist in the bound folder, and the engine would create a missing
one on the host.
"""

from __future__ import annotations

import hashlib
import os

from sandboxd.linux.rootfs.state import StateFolder
from sandboxd.policy.mounts.mount_plan import Mount, MountKind


class Mountpoints:
    def __init__(self, state: StateFolder) -> None:
        self._state = state

    def __call__(self, path: str, inner: tuple[Mount, ...]) -> str:
        """The folder for `path`, made if it does not exist."""
        wanted = [
            (p.path[len(path) + 1 :], p.kind is MountKind.LINK, p.is_dir, p.target) for p in inner
        ]
        key = hashlib.sha256(repr(wanted).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        folder = os.path.join(self._state.folder("mountpoints"), key)
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o755)
            os.chmod(folder, 0o755)
            for name, is_link, is_dir, target in wanted:
                _place(os.path.join(folder, name), target if is_link else None, is_dir=is_dir)
        return folder


def _place(path: str, target: str | None, *, is_dir: bool) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if target is not None:
        os.symlink(target, path)
    elif is_dir:
        os.makedirs(path, mode=0o755, exist_ok=True)
    else:
        with open(path, "wb"):
            os.chmod(path, 0o444)
