"""Paths inside writable grants that stay read-only: the daemon's own code, and protected files."""

from __future__ import annotations

import os
from collections.abc import Iterable

from sandboxd.policy.own import OwnPaths
from sandboxd.policy.plan import Protected, SandboxSpec


def own_code(spec: SandboxSpec, own: OwnPaths) -> tuple[Protected, ...]:
    """The daemon's code where a caller's writable path contains it."""
    found: list[Protected] = []
    for root in spec.paths("write"):
        below = root.rstrip("/") + "/"
        for path in own.read_only:
            if path.startswith(below):
                found.append(Protected(path, root, present=True, is_dir=os.path.isdir(path)))
    return tuple(found)


def for_workspace(workspace: str, more: Iterable[str]) -> tuple[Protected, ...]:
    return ()
