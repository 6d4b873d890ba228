"""A workspace whose `.git` is a file: a worktree or submodule with its git dir elsewhere.

The file alone proves nothing: a command could write one that names any repository. It counts only
if the git dir itself points back at this workspace.
"""

from __future__ import annotations

import posixpath

import msgspec

from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.within import within
from sandboxd.policy.protected.git_dir import looks_like_git_dir, read_config, read_text


class LinkedGit(msgspec.Struct, frozen=True):
    """`common` differs from `git_dir` for a worktree: what all worktrees share lies there."""

    git_dir: str
    common: str


def find_linked_git(workspace: str) -> LinkedGit | None:
    """The git dir that `workspace` belongs to, if it agrees."""
    pointer = posixpath.join(workspace, ".git")
    if recording_fs.islink(pointer) or not recording_fs.isfile(pointer):
        return None
    said = read_text(pointer)
    if not said.startswith("gitdir:"):
        return None
    git_dir = recording_fs.realpath(posixpath.join(workspace, said.removeprefix("gitdir:").strip()))
    if not looks_like_git_dir(git_dir) or within(workspace, git_dir):
        return None
    if recording_fs.lexists(posixpath.join(git_dir, "commondir")):
        return _worktree(workspace, git_dir)
    return _submodule(workspace, git_dir)


def main_checkout(workspace: str) -> str | None:
    """The checkout that a linked worktree belongs to, where both point at each other."""
    found = find_linked_git(workspace)
    if found is None or found.common == found.git_dir or not found.common.endswith("/.git"):
        return None
    return posixpath.dirname(found.common)


def _worktree(workspace: str, git_dir: str) -> LinkedGit | None:
    back = read_text(posixpath.join(git_dir, "gitdir")).strip()
    if not back or recording_fs.realpath(posixpath.join(git_dir, back)) != f"{workspace}/.git":
        return None
    said = read_text(posixpath.join(git_dir, "commondir")).strip()
    common = recording_fs.realpath(posixpath.join(git_dir, said))
    # Git itself puts a worktree's state nowhere else; another place could name any repository.
    if posixpath.dirname(git_dir) != posixpath.join(common, "worktrees"):
        return None
    return LinkedGit(git_dir, common) if looks_like_git_dir(common) else None


def _submodule(workspace: str, git_dir: str) -> LinkedGit | None:
    tree = dict(read_config(posixpath.join(git_dir, "config"))).get("core.worktree")
    if not tree or recording_fs.realpath(posixpath.join(git_dir, tree)) != workspace:
        return None
    return LinkedGit(git_dir, git_dir)
