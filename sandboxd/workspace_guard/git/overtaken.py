"""Folders of the user that a command turned into repositories whose programs git would run.

A repository that a command makes in a folder of its own is only named in the result. In a folder
that existed before, the user's next git command would use it: if git would run a program because of
it, it is moved aside.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable

from sandboxd.workspace_guard.dirfd import Entry, find, open_root, read_file
from sandboxd.workspace_guard.git.repository import is_harmful_repository, open_exec_paths
from sandboxd.workspace_guard.quarantine import Moved, Quarantine

log = logging.getLogger(__name__)
_SMALL = 4096
MOST_JUDGED = 512  # at a time: what a command makes beyond them is moved aside unread
_one_at_a_time = threading.Lock()  # two that take the same entry would report a failure


def undo(workspace: str, folders: Iterable[str], known: frozenset[str]) -> list[Moved]:
    """Move aside what makes each a repository, if it is harmful. For a thread.

    `known`: git dirs whose settings are protected.
    """
    with _one_at_a_time:
        return _undo(workspace, folders, known)


def _undo(workspace: str, folders: Iterable[str], known: frozenset[str]) -> list[Moved]:
    root = open_root(workspace)
    quarantine = Quarantine(root, workspace)
    moved: list[Moved] = []
    try:
        for count, folder in enumerate(folders):
            name = _harmful_name(folder, known, workspace, unread=count >= MOST_JUDGED)
            if name is None:
                continue
            with find(root, workspace, os.path.join(folder, name)) as entry:
                if entry is not None:
                    moved.append(_taken(quarantine, entry))
    finally:
        quarantine.close()
        os.close(root)
    return moved


def _taken(quarantine: Quarantine, entry: Entry) -> Moved:
    log.warning("%s is undone: it made a folder a repository that runs programs", entry.path)
    return quarantine.take(entry)


def _harmful_name(
    folder: str, known: frozenset[str], root: str, *, unread: bool = False
) -> str | None:
    """The entry without which the folder is no repository. A link in the place of the folder, or of
    one above it, can lead where nothing is protected."""
    real = os.path.realpath(folder)
    has_git = os.path.lexists(os.path.join(real, ".git"))
    if unread or real != folder:
        return ".git" if has_git else "HEAD"
    if has_git:
        is_harmless = _is_own_worktree(folder, known) or not is_harmful_repository(
            folder, known, root
        )
        return None if is_harmless else ".git"
    try:
        fd = open_root(folder)
    except OSError:
        return None
    try:
        return "HEAD" if open_exec_paths(fd, finished=True, root=root) else None
    finally:
        os.close(fd)


def _is_own_worktree(folder: str, known: frozenset[str]) -> bool:
    """What `git worktree add` makes of a protected repository."""
    try:
        place = open_root(folder)
    except OSError:
        return False
    try:
        said = (read_file(place, ".git", _SMALL) or b"").removeprefix(b"gitdir: ").rstrip(b"\r\n")
        path = os.path.join(os.fsencode(folder), said)
        git_dir = os.path.realpath(path)
        if git_dir != os.path.normpath(path):
            return False  # through a link that could be exchanged
        state = open_root(os.fsdecode(git_dir))
    except (OSError, ValueError):
        return False
    finally:
        os.close(place)
    try:
        common = (read_file(state, "commondir", _SMALL) or b"").rstrip(b"\n")
        leads_to = os.fsdecode(os.path.realpath(os.path.join(git_dir, common)))
        inside = os.path.dirname(os.fsdecode(git_dir)) == os.path.join(leads_to, "worktrees")
        exec_paths = set(open_exec_paths(state, finished=True)) - {"commondir"}
        return bool(common) and inside and leads_to in known and not exec_paths
    finally:
        os.close(state)
