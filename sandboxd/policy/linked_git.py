"""A workspace whose `.git` is a file: a worktree or submodule with its git dir elsewhere.

The file alone proves nothing: a command could write one that names any repository. It counts only
if the git dir itself points back at this workspace.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from sandboxd.policy import hostfs
from sandboxd.policy.git_dir import inside, looks_like_git_dir, read_config, read_text


@dataclass(frozen=True, slots=True)
class LinkedGit:
    """`common` differs from `git_dir` for a worktree: what all worktrees share lies there."""

    git_dir: str
    common: str


def linked(workspace: str) -> LinkedGit | None:
    """The git dir that `workspace` belongs to, if it agrees."""
    pointer = os.path.join(workspace, ".git")
    if hostfs.islink(pointer) or not hostfs.isfile(pointer):
        return None
    said = read_text(pointer)
    if not said.startswith("gitdir:"):
        return None
    git_dir = hostfs.realpath(os.path.join(workspace, said.removeprefix("gitdir:").strip()))
    if not looks_like_git_dir(git_dir) or inside(workspace, git_dir):
        return None
    if hostfs.lexists(os.path.join(git_dir, "commondir")):
        return _worktree(workspace, git_dir)
    return _submodule(workspace, git_dir)


def _worktree(workspace: str, git_dir: str) -> LinkedGit | None:
    back = read_text(os.path.join(git_dir, "gitdir")).strip()
    if not back or hostfs.realpath(os.path.join(git_dir, back)) != f"{workspace}/.git":
        return None
    said = read_text(os.path.join(git_dir, "commondir")).strip()
    common = hostfs.realpath(os.path.join(git_dir, said))
    # Git itself puts a worktree's state nowhere else; another place could name any repository.
    if os.path.dirname(git_dir) != os.path.join(common, "worktrees"):
        return None
    return LinkedGit(git_dir, common) if looks_like_git_dir(common) else None


def _submodule(workspace: str, git_dir: str) -> LinkedGit | None:
    tree = dict(read_config(os.path.join(git_dir, "config"))).get("core.worktree")
    if not tree or hostfs.realpath(os.path.join(git_dir, tree)) != workspace:
        return None
    return LinkedGit(git_dir, git_dir)
