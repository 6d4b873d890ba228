"""Replace many paths by few folders, but never by a folder that holds much else."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable

from sandboxd.policy.data.system_dirs import AMBIENT
from sandboxd.policy.paths.within import is_below, within, within_any

LEAST = 3  # from this number of siblings on their folder is granted

_WIDE_ROOTS = (*AMBIENT, "/usr")
_IN_A_HOME = frozenset({".config", ".local", ".local/share", ".local/state", ".cache"})


def too_wide(path: str, homes: Iterable[str]) -> bool:
    """The root and its folders, the system's, whole home folders, and what collects settings."""
    parts = [part for part in path.split("/") if part]
    if len(parts) < 2 or (len(parts) < 3 and f"/{parts[0]}" in _WIDE_ROOTS):
        return True
    for home in homes:
        home = home.rstrip("/")
        if within(home, path):
            return True
        if is_below(path, home) and path[len(home) + 1 :] in _IN_A_HOME:
            return True
    return False


def fold_paths(paths: Iterable[str], is_wide: Callable[[str], bool]) -> dict[str, str]:
    """Each path → the entry that covers it: itself, one above, or a folder of several."""
    given = list(dict.fromkeys(paths))
    entries = outermost(given)
    while True:
        neighbours: dict[str, int] = {}
        for entry in entries:
            folder = posixpath.dirname(entry)
            neighbours[folder] = neighbours.get(folder, 0) + 1
        wider = [f for f, count in neighbours.items() if count >= LEAST and not is_wide(f)]
        if not wider:
            break
        # The deepest first: its result may be merged into the next one above.
        deepest = max(wider, key=lambda folder: folder.count("/"))
        entries = outermost([*entries, deepest])
    return {path: next(e for e in entries if within(path, e)) for path in given}


def outermost(paths: Iterable[str]) -> list[str]:
    """Without paths below another one; in order."""
    kept: list[str] = []
    for path in sorted(set(paths), key=lambda p: (p.count("/"), p)):
        if not within_any(path, kept):
            kept.append(path)
    return sorted(kept)
