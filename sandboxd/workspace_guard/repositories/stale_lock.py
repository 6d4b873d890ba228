"""The index lock of a git that was killed: it would make the user's next git command fail.

Only after the command's whole tree is dead, for a lock that was made while the command ran and that
no process of the host has open, and no git that works there may come back to: `git commit -a` has
closed its lock while an editor is open.
"""

from __future__ import annotations

import os
import stat

from sandboxd.platform.open_flags import OPEN_FOLDER
from sandboxd.policy.paths.within import within

LOCK = "index.lock"


def remove_stale_lock(workspace: str, started_at: float) -> bool:
    """Whether there was one. Links are not followed; a linked worktree has its lock elsewhere."""
    try:
        folder = os.open(os.path.join(workspace, ".git"), OPEN_FOLDER)
    except OSError:
        return False
    try:
        found = os.stat(LOCK, dir_fd=folder, follow_symlinks=False)
        made_by_it = stat.S_ISREG(found.st_mode) and found.st_ctime >= started_at
        if not made_by_it or _is_used(found, workspace):
            return False
        os.unlink(LOCK, dir_fd=folder)
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def _is_used(wanted: os.stat_result, workspace: str) -> bool:
    """Whether a process has the file open, or is a git in the workspace; also True for another
    user's git, which cannot be examined."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if _is_git_in(pid, workspace):
                return True
            numbers = os.listdir(f"/proc/{pid}/fd")
        except PermissionError:
            if _is_git_of(pid, wanted.st_uid):
                return True
            continue
        except OSError:
            continue
        for number in numbers:
            try:
                found = os.stat(f"/proc/{pid}/fd/{number}")
            except OSError:
                continue
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    return False


def _is_git_in(pid: str, workspace: str) -> bool:
    """Git goes to the top of its work tree before it makes the lock. In a container that has
    another path."""
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        is_git = file.read().startswith("git")
    place = f"/proc/{pid}/cwd"
    return is_git and (within(os.readlink(place), workspace) or os.path.samefile(place, workspace))


def _is_git_of(pid: str, owner: int) -> bool:
    """git makes its lock itself, so the lock of another user's git has another owner."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
    except OSError:
        return False
    return fields["Name"].strip().startswith("git") and str(owner) in fields["Uid"].split()
