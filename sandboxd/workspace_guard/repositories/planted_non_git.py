"""Undo repositories of Mercurial, Jujutsu and the like that a command planted in user folders.

What names programs in such a repository is moved aside, whatever it says, as in the top folder of
the workspace. A repository that a command makes in a folder of its own is only named in the result.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Iterable

from sandboxd.policy.data.protected_names import NOT_NEW
from sandboxd.policy.protected.nested_git import exec_paths
from sandboxd.workspace_guard.dirfd import find, open_root
from sandboxd.workspace_guard.quarantine.quarantine import Moved, Quarantine

log = logging.getLogger(__name__)
_one_at_a_time = threading.Lock()  # two that take the same entry would report a failure


def undo(root: str, marks: Iterable[str]) -> list[Moved]:
    """Move aside what each new `.hg` and the like names programs by. For a thread."""
    with _one_at_a_time:
        return _undo(root, marks)


def _undo(root: str, marks: Iterable[str]) -> list[Moved]:
    fd = open_root(root)
    quarantine = Quarantine(fd, root)
    moved: list[Moved] = []
    try:
        for mark in marks:
            for path in (*_leads_elsewhere(mark), *exec_paths(mark)):
                with find(fd, root, path) as entry:
                    # A link in the place of a folder leads to settings elsewhere.
                    if entry is not None and (entry.path == path or entry.is_link):
                        log.warning("%s is undone: it names programs", entry.path)
                        moved.append(quarantine.take(entry))
    finally:
        quarantine.close()
        os.close(fd)
    return moved


def _leads_elsewhere(mark: str) -> list[str]:
    """A file in the place of a repository's folder."""
    folder, name = os.path.split(mark)
    paths = [os.path.join(folder, one) for one in NOT_NEW if one.startswith(f"{name}/")]
    return [path for path in paths if _is_no_folder(path)]


def _is_no_folder(path: str) -> bool:
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
