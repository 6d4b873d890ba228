"""Many paths → few folders, without ever opening a folder that holds much else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

LEAST = 3  # as many neighbours as make their folder the better answer

_SYSTEM_FOLDERS = ("/usr", "/var", "/etc", "/boot", "/sys", "/proc", "/dev", "/run")
_IN_A_HOME = frozenset({".config", ".local", ".local/share", ".local/state", ".cache"})


def too_wide(path: str, homes: Iterable[str]) -> bool:
    """The root and its folders, the system's, whole home folders, and what collects settings."""
    parts = [part for part in path.split("/") if part]
    if len(parts) < 2 or (len(parts) < 3 and f"/{parts[0]}" in _SYSTEM_FOLDERS):
        return True
    for home in homes:
        home = home.rstrip("/")
        if home == path or home.startswith(path + "/"):
            return True
        if path.startswith(home + "/") and path[len(home) + 1 :] in _IN_A_HOME:
            return True
    return False


def folded(paths: Iterable[str], is_wide: Callable[[str], bool]) -> dict[str, str]:
    """Each path → the entry that covers it: itself, one above, or a folder of several."""
    given = list(dict.fromkeys(paths))
    entries = outermost(given)
    while True:
        neighbours: dict[str, int] = {}
        for entry in entries:
            folder = os.path.dirname(entry)
            neighbours[folder] = neighbours.get(folder, 0) + 1
        wider = [f for f, count in neighbours.items() if count >= LEAST and not is_wide(f)]
        if not wider:
            break
        # The deepest first: its own result may be what the next one above is made of.
        deepest = max(wider, key=lambda folder: folder.count("/"))
        entries = outermost([*entries, deepest])
    return {path: next(e for e in entries if covers(e, path)) for path in given}


def outermost(paths: Iterable[str]) -> list[str]:
    """Without those that lie in another one; in order."""
    kept: list[str] = []
    for path in sorted(set(paths), key=lambda p: (p.count("/"), p)):
        if not any(covers(other, path) for other in kept):
            kept.append(path)
    return sorted(kept)


def covers(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
