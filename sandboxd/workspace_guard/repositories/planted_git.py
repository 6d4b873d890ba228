"""Undo git repositories that a command planted in folders of the user and that would run programs.

In a folder that existed before the user's next git command would use it: if git would run a program
because of it, it is moved aside. Those that a command makes in folders of its own: see `disarm`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable

from sandboxd.policy.protected import git_links
from sandboxd.policy.protected.git_dir import read_text
from sandboxd.workspace_guard.dirfd import Entry, find, open_root, read_file
from sandboxd.workspace_guard.git import named_programs
from sandboxd.workspace_guard.git.planned_git import PlannedGit
from sandboxd.workspace_guard.git.repository import is_harmful_repository, open_exec_paths
from sandboxd.workspace_guard.quarantine.quarantine import Moved, Quarantine

log = logging.getLogger(__name__)
_SMALL = 4096
MOST_JUDGED = 512  # at a time: what a command makes beyond them is moved aside unread
one_at_a_time = threading.Lock()  # two that take the same entry would report a failure


def undo(workspace: str, folders: Iterable[str], planned: PlannedGit) -> list[Moved]:
    """Move aside what makes each a repository, if it is harmful. For a thread."""
    with one_at_a_time:
        return _undo(workspace, folders, planned)


def _undo(workspace: str, folders: Iterable[str], planned: PlannedGit) -> list[Moved]:
    root = open_root(workspace)
    quarantine = Quarantine(root, workspace)
    moved: list[Moved] = []
    try:
        for count, folder in enumerate(folders):
            unread = count >= MOST_JUDGED
            moved += undo_one(root, workspace, folder, planned, quarantine, unread=unread)
    finally:
        quarantine.close()
        os.close(root)
    return moved


def undo_one(
    root: int, workspace: str, folder: str, planned: PlannedGit, quarantine: Quarantine, *,
    unread: bool, writable: tuple[str, ...] | None = None,
) -> list[Moved]:  # fmt: skip
    """`writable`: where no remote may be; all writable folders unless it is given."""
    if writable is None:
        writable = (workspace, *planned.writable)
    name = _harmful_name(folder, planned, workspace, writable, unread=unread)
    if name is None and named_programs.has_named_programs(folder, workspace, planned.git_homes):
        name = ".git" if os.path.lexists(f"{folder}/.git") else "HEAD"
    if name is None:
        return []
    with find(root, workspace, os.path.join(folder, name)) as entry:
        return [_taken(quarantine, entry)] if entry is not None else []


def _taken(quarantine: Quarantine, entry: Entry) -> Moved:
    log.warning("%s is undone: it made a folder a repository that runs programs", entry.path)
    return quarantine.take(entry)


def _harmful_name(
    folder: str, planned: PlannedGit, root: str, writable: tuple[str, ...], *, unread: bool
) -> str | None:
    """The entry without which the folder is no repository. A link in the place of the folder, or of
    one above it, can lead where nothing is protected."""
    real = os.path.realpath(folder)
    has_git = os.path.lexists(os.path.join(real, ".git"))
    if unread or real != folder:
        return ".git" if has_git else "HEAD"
    if has_git:
        is_harmless = _is_own_worktree(folder, planned.known, root) or not is_harmful_repository(
            folder, planned, root, writable
        )
        return None if is_harmless else ".git"
    try:
        fd = open_root(folder)
    except OSError:
        return None
    try:
        return "HEAD" if open_exec_paths(fd, finished=True, writable=writable) else None
    finally:
        os.close(fd)


def _is_own_worktree(folder: str, known: frozenset[str], root: str) -> bool:
    """What `git worktree add` makes of the workspace's repository. An earlier command may have made
    any other one, to run programs."""
    leads_to = common_dir(folder)
    return leads_to is not None and leads_to in known and leads_to in _git_dirs_of(root)


def common_dir(folder: str) -> str | None:
    """The git dir of the repository that this folder is a worktree of, as `git worktree add` makes
    one; None if it is something else."""
    try:
        place = open_root(folder)
    except OSError:
        return None
    try:
        said = (read_file(place, ".git", _SMALL) or b"").removeprefix(b"gitdir: ").rstrip(b"\r\n")
        path = os.path.join(os.fsencode(folder), said)
        git_dir = os.path.realpath(path)
        if git_dir != os.path.normpath(path):
            return None  # through a link that could be exchanged
        state = open_root(os.fsdecode(git_dir))
    except (OSError, ValueError):
        return None
    finally:
        os.close(place)
    try:
        common = (read_file(state, "commondir", _SMALL) or b"").rstrip(b"\n")
        leads_to = os.fsdecode(os.path.realpath(os.path.join(git_dir, common)))
        inside = os.path.dirname(os.fsdecode(git_dir)) == os.path.join(leads_to, "worktrees")
        exec_paths = set(open_exec_paths(state, finished=True)) - {"commondir"}
        return leads_to if common and inside and not exec_paths else None
    finally:
        os.close(state)


def _git_dirs_of(root: str) -> set[str]:
    """Of the repository that git finds at the top, which is the user's or harmless."""
    git_dir = git_links.git_dir_of(root) or root
    common = os.path.join(git_dir, read_text(f"{git_dir}/commondir").strip())
    return {git_dir, os.path.realpath(common)}
