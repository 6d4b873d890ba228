"""Worktrees that a command added: whether git on the host would write or look elsewhere for them.

`git worktree repair` writes a `.git` to the folder that `worktrees/<name>/gitdir` names, if it has
none that leads back; `commondir` names the repository that git then uses there.
"""

from __future__ import annotations

import os
import stat

from sandboxd.policy.protected import git_config
from sandboxd.workspace_guard.dirfd import enter, list_names, open_root, read_file

FOLDER = "worktrees"
_MOST = 1000
_SMALL = 4096
_SPACE = b" \t\n\r\v\f"


def misleading_worktrees(git_dir: int, path: str) -> list[str]:
    """The entries of `worktrees` that are not as `git worktree add` makes them.

    `path`: where the git dir is. All of it if there are too many to look at.
    """
    folder = enter(git_dir, FOLDER)
    if folder is None:
        return []
    try:
        names = list_names(folder, _MOST)
        if names is None:
            return [FOLDER]
        relative = _may_be_relative(git_dir)
        return [
            f"{FOLDER}/{name}"
            for name in names
            if _is_misleading(folder, name, os.path.realpath(path), relative)
        ]
    finally:
        os.close(folder)


def _may_be_relative(git_dir: int) -> bool:
    """Older versions of git take a relative path from the folder that they are started in."""
    data = read_file(git_dir, "config", git_config.MAX_BYTES) or b""
    settings = dict(git_config.entries(os.fsdecode(data)))
    return "extensions.relativeworktrees" in settings


def _is_misleading(worktrees: int, name: str, git_dir: str, relative: bool) -> bool:
    state = enter(worktrees, name)
    if state is None:
        return False  # git takes folders only; links are judged as such
    try:
        common, back = (_read(state, one) for one in ("commondir", "gitdir"))
    except OSError:
        return True
    finally:
        os.close(state)
    path = os.path.join(git_dir, FOLDER, name)
    if common is not None and os.path.realpath(os.path.join(path, common)) != git_dir:
        return True
    if back is None:
        return False  # git ignores it
    if not back.startswith("/") and not relative:
        return True
    tree = os.path.join(path, back.removesuffix("/.git"))
    return not leads_back(os.path.normpath(tree), path)


def _read(state: int, name: str) -> str | None:
    """None if it is not there; OSError if it is no plain small file."""
    try:
        os.stat(name, dir_fd=state, follow_symlinks=False)
    except FileNotFoundError:
        return None
    data = read_file(state, name, _SMALL)
    if data is None or b"\0" in data:
        raise OSError(f"{name} cannot be read")
    return os.fsdecode(data.rstrip(_SPACE))


def leads_back(tree: str, state: str, *, must_exist: bool = False) -> bool:
    """Whether nothing is there, or a worktree of this state. A link on the way could change."""
    if os.path.realpath(tree) != tree:
        return False
    if not os.path.lexists(tree):
        return not must_exist
    try:
        folder = open_root(tree)
    except OSError:
        return False
    try:
        mode = os.stat(".git", dir_fd=folder, follow_symlinks=False).st_mode
        data = read_file(folder, ".git", _SMALL) if stat.S_ISREG(mode) else None
    except OSError:
        return False
    finally:
        os.close(folder)
    if data is None or not data.startswith(b"gitdir: ") or b"\0" in data:
        return False
    said = os.fsdecode(data.removeprefix(b"gitdir: ").rstrip(b"\r\n"))
    return os.path.realpath(os.path.join(tree, said)) == state
