"""Registry of protected folders that running commands made, and that are removed when they end.

The guard of such a command names them here. A plan takes them for missing: a mount on one would be
lost when it is removed, and end the sandbox.
"""

from __future__ import annotations

_paths: set[str] = set()


def add(path: str) -> None:
    _paths.add(path)


def discard(path: str) -> None:
    _paths.discard(path)


def has(path: str) -> bool:
    return path in _paths
