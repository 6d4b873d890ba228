"""Folders of the user that have become repositories: the sibling of `git/overtaken` by names.

Whatever the repository holds, it is moved aside: on systems where files are not judged through
descriptors, a new repository in a folder of the user is not looked into.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sandboxd.platform.current import files
from sandboxd.workspace_guard.kept_folder import KeptFolder, Pin
from sandboxd.workspace_guard.swept import Swept

_one_at_a_time = threading.Lock()


def undo(workspace: str, folders: Iterable[str], pin: Pin) -> list[Swept]:
    """Move aside what makes each a repository. For a thread."""
    kept = KeptFolder(files.native(workspace), pin)
    with _one_at_a_time:
        return [one for folder in folders for one in _undone(workspace, folder, kept)]


def _undone(workspace: str, folder: str, kept: KeptFolder) -> list[Swept]:
    name = ".git" if files.lexists(f"{folder}/.git") else "HEAD"
    path = f"{folder}/{name}"
    try:
        moved, to = kept.take(path[len(workspace) + 1 :].split("/"))
    except FileNotFoundError:
        return []
    except OSError as error:
        return [Swept(path, None, error.strerror or str(error))]
    return [Swept("/".join((workspace, *moved)), "/".join((workspace, *to)))]
