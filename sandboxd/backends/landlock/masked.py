"""Masked paths without mounts: notices when a granted file has taken the name of a masked one.

Landlock grants inodes. What lies beside a masked file is granted, and that includes the temporary
file that an editor is about to rename over it: the secret is then readable by its own name.
"""

from __future__ import annotations

import os

from sandboxd.linux.openat import changed_error
from sandboxd.policy.plan import Identity, SandboxSpec


class MaskedFiles:
    """Of one sandbox. `grant` is told every inode that a rule names."""

    def __init__(self, spec: SandboxSpec) -> None:
        # The identities of the masks come first; specs made by hand have none.
        self._planned = [
            (mask.path, identity)
            for mask, identity in zip(spec.masks, spec.mount_points, strict=False)
        ]
        self._granted: set[tuple[int, int]] = set()

    def grant(self, status: os.stat_result) -> None:
        self._granted.add((status.st_dev, status.st_ino))

    def refuse_replaced(self) -> None:
        """PathDenied if a masked path changed while the sandbox was made."""
        for path, planned in self._planned:
            if _identity(path) not in (planned, None):
                raise changed_error(path, "it was replaced")

    def exposed(self) -> str | None:
        """The masked path that is a granted file by now."""
        for path, planned in self._planned:
            now = _identity(path)
            if now not in (planned, None) and (now.device, now.inode) in self._granted:
                return path
        return None


def _identity(path: str) -> Identity | None:
    try:
        return Identity.of(os.lstat(path))
    except OSError:
        return None
