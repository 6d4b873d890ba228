"""Folders of the user that have become repositories: the sibling of `git/overtaken` by names.

Whatever the repository holds, it is moved aside: on systems where files are not judged through
descriptors, a new repository in a folder of the user is not looked into.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sandboxd.platform.current import files
from sandboxd.policy.protected.nested_git import exec_paths
from sandboxd.workspace_guard.kept_folder import KeptFolder, Pin
from sandboxd.workspace_guard.swept import Swept

_one_at_a_time = threading.Lock()


def undo(workspace: str, folders: Iterable[str], pin: Pin) -> list[Swept]:
    """Move aside what makes each a repository. For a thread."""
    kept = KeptFolder(files.native(workspace), pin)
    with _one_at_a_time:
        return [one for folder in folders for one in _undone(workspace, folder, kept)]


def undo_others(root: str, marks: Iterable[str], pin: Pin) -> list[Swept]:
    """The same for each new `.hg` and the like: what would run programs. For a thread."""
    kept = KeptFolder(files.native(root), pin)
    paths = [path for mark in marks for path in exec_paths(mark)]
    with _one_at_a_time:
        return [one for path in filter(files.lexists, paths) for one in _taken(root, path, kept)]


def _undone(workspace: str, folder: str, kept: KeptFolder) -> list[Swept]:
    name = ".git" if files.lexists(f"{folder}/.git") else "HEAD"
    return _taken(workspace, f"{folder}/{name}", kept)


def _taken(workspace: str, path: str, kept: KeptFolder) -> list[Swept]:
    try:
        moved, to = kept.take(path[len(workspace) + 1 :].split("/"))
    except FileNotFoundError:
        return []
    except OSError as error:
        return [Swept(path, None, error.strerror or str(error))]
    return [Swept("/".join((workspace, *moved)), "/".join((workspace, *to)))]
