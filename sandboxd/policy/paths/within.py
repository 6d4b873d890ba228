"""Whether a path lies in a folder: the predicate that grants, masks and denials use.

Both paths are absolute and normal (no `..`, no doubled slash), and canonical where it matters: the
comparison is by text. A folder may end with a slash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it."""
    return path == folder or is_below(path, folder)


def is_below(path: str, folder: str) -> bool:
    """Whether `path` lies in `folder` and is not the folder itself."""
    return path.startswith(folder.rstrip("/") + "/") and path != folder


def within_any(path: str, folders: Iterable[str]) -> bool:
    return any(within(path, folder) for folder in folders)


def folders_above(path: str) -> Iterator[str]:
    while path != "/":
        path = path[: path.rfind("/")] or "/"
        yield path
