"""Move aside the repositories that a command planted in folders of the user, by names.

Whatever the repository holds, it is moved aside: on systems where files are not judged through
descriptors, a new repository in a folder of the user is not looked into.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sandboxd.platform.current import files
from sandboxd.policy.protected.nested_git import exec_paths
from sandboxd.workspace_guard.by_name.quarantine import PathQuarantine, Pin
from sandboxd.workspace_guard.by_name.swept_path import SweptPath

_one_at_a_time = threading.Lock()


def undo(workspace: str, folders: Iterable[str], pin: Pin) -> list[SweptPath]:
    """Move aside what makes each a repository. For a thread."""
    kept = PathQuarantine(files.native(workspace), pin)
    with _one_at_a_time:
        return [one for folder in folders for one in _undone(workspace, folder, kept)]


def undo_planted_others(root: str, marks: Iterable[str], pin: Pin) -> list[SweptPath]:
    """The same for each new `.hg` and the like: what would run programs. For a thread."""
    kept = PathQuarantine(files.native(root), pin)
    paths = [path for mark in marks for path in exec_paths(mark)]
    with _one_at_a_time:
        return [one for path in filter(files.lexists, paths) for one in _taken(root, path, kept)]


def _undone(workspace: str, folder: str, kept: PathQuarantine) -> list[SweptPath]:
    name = ".git" if files.lexists(f"{folder}/.git") else "HEAD"
    return _taken(workspace, f"{folder}/{name}", kept)


def _taken(workspace: str, path: str, kept: PathQuarantine) -> list[SweptPath]:
    try:
        moved, to = kept.take(path[len(workspace) + 1 :].split("/"))
    except FileNotFoundError:
        return []
    except OSError as error:
        return [SweptPath(path, None, error.strerror or str(error))]
    return [SweptPath("/".join((workspace, *moved)), "/".join((workspace, *to)))]
