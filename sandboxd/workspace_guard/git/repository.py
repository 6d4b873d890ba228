"""Whether a repository that a command made, or that the index leads to, would run programs.

`git status` enters each repository that the index names: its config, its hooks, its own index.
Everything is read by descriptor, as data.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable

import msgspec

from sandboxd.platform.open_flags import OPEN_FOLDER
from sandboxd.policy.data import git_work_names
from sandboxd.policy.data.git_work_names import is_info_work
from sandboxd.policy.data.protected_names import GIT_DIR, REBASE_STATE
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.protected import git_config
from sandboxd.policy.protected.git_dir import looks_like_git_dir
from sandboxd.policy.protected.protect import LONGEST_PATH
from sandboxd.posix.descriptors import path_of
from sandboxd.workspace_guard import snapshot
from sandboxd.workspace_guard.dirfd import (
    enter,
    list_names,
    list_plain,
    open_root,
    read_file,
)
from sandboxd.workspace_guard.git import judge, named_programs, worktree_states
from sandboxd.workspace_guard.git.links import GitDirLinks, enter_below
from sandboxd.workspace_guard.git.planned_git import PlannedGit
from sandboxd.workspace_guard.git.stored_links import StoredLinks
from sandboxd.workspace_guard.git.symbolic_refs import SymbolicRefs

_MOST_FOLDERS = 1000
_MOST_REPOSITORIES = 1000
_DEEPEST = 8
_SMALL = 4096
_MOST_POINTER = 1 << 20  # git's own limit
_MOST_SAMPLES = 256
_MOST_MODULES = 256
_MOST_INDEX_BYTES = 128 << 20


def hash_bytes(git_dir: int) -> int:
    """How long the names of objects are."""
    for name in git_config.PLACES:
        data = read_file(git_dir, name, git_config.MAX_BYTES)
        if data is not None:
            return git_config.hash_bytes(data)
    return 20


def work_tree(git_dir: int, path: str) -> str:
    """The folder that paths in the index start from."""
    back = read_file(git_dir, "gitdir", _SMALL)
    if back is not None:
        return os.path.dirname(os.path.join(path, os.fsdecode(back).rstrip("\n")))
    data = read_file(git_dir, "config", git_config.MAX_BYTES)
    tree = dict(git_config.entries(os.fsdecode(data or b""))).get("core.worktree")
    if tree:
        return os.path.normpath(os.path.join(path, tree))
    return os.path.dirname(path) if os.path.basename(path) == ".git" else path


class _Judging(msgspec.Struct, frozen=True):
    """`modules`: where no command makes a git dir. `depth`: how many repositories lead there; a
    longer chain counts as harmful. `writable`: as for `open_exec_paths`."""

    planned: PlannedGit
    roots: tuple[str, ...]
    modules: str | None = None
    depth: int = 0
    writable: tuple[str, ...] = ()

    def is_users_own(self, git_dir: str) -> bool:
        is_module = self.modules is not None and is_below(git_dir, self.modules)
        return is_module and git_dir in self.planned.known


def harmful_check(
    tree: str, git_dir: str, planned: PlannedGit, depth: int = 0
) -> Callable[[bytes], bool]:
    """For a path below `tree`: whether git would run a program of the repository there.

    `git_dir` is the one of `tree`.
    """
    modules = os.path.join(git_dir, "modules") if depth == 0 else None
    judging = _Judging(planned, (os.path.realpath(tree), git_dir), modules, depth)
    left = [_MOST_REPOSITORIES]

    def is_harmful(path: bytes) -> bool:
        left[0] -= 1
        if left[0] < 0 or depth > _DEEPEST:
            return True
        place = os.path.realpath(os.path.join(tree, os.fsdecode(path)))
        if path.endswith(b"/"):
            return _any_below(place, judging)
        return _is_harmful(place, judging)

    return is_harmful


def is_harmful_repository(
    folder: str, planned: PlannedGit, root: str, writable: tuple[str, ...]
) -> bool:
    """Whether git would run a program of the repository that it finds in this folder, in `root`."""
    return _is_harmful(folder, _Judging(planned, (root,), writable=writable))


def _is_harmful(folder: str, judging: _Judging) -> bool:
    pointer = os.path.join(folder, ".git")
    try:
        mode = os.lstat(pointer).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    if stat.S_ISREG(mode):
        target = _target(pointer)
        if target is None:
            return False  # git does not accept it as a repository
        pointer = os.path.join(folder, target)
    git_dir = os.path.realpath(pointer)
    if not stat.S_ISDIR(mode) and not _is_settled(pointer, git_dir, judging):
        return True
    if judging.is_users_own(git_dir):
        return False
    try:
        fd = open_root(git_dir)
    except OSError:
        return os.path.lexists(git_dir)
    try:
        # Git goes on into the repositories that this one names.
        return (
            bool(
                open_exec_paths(
                    fd, finished=False, tree=folder, writable=judging.writable, top=folder
                )
            )
            or named_programs.has_named_programs(
                folder, judging.roots[0], judging.planned.git_homes
            )
            or is_harmful_index(fd, judging.planned, tree=folder, depth=judging.depth + 1)
        )
    finally:
        os.close(fd)


def _is_settled(pointer: str, git_dir: str, judging: _Judging) -> bool:
    """Whether no later command can exchange what a `.git` file leads to: the plan of one protects
    a git dir that is there, in `roots`. Through a link, or in other folders, it may not see it."""
    if git_dir != os.path.normpath(pointer):
        return False
    is_here = any(within(git_dir, root) for root in judging.roots) and looks_like_git_dir(git_dir)
    return git_dir in judging.planned.known or is_here


def _target(pointer: str) -> str | None:
    """Where a `.git` file leads. As for git blanks count, and line ends at its end do not."""
    folder = open_root(os.path.dirname(pointer))
    try:
        data = read_file(folder, ".git", _MOST_POINTER)
    finally:
        os.close(folder)
    if data is None or not data.startswith(b"gitdir: "):
        return None
    target = os.fsdecode(data.rstrip(b"\r\n")[8:].partition(b"\0")[0])
    return target if len(target) <= LONGEST_PATH else None


def _any_below(folder: str, judging: _Judging) -> bool:
    pending = deque([folder])
    looked = 0
    while pending:
        at = pending.popleft()
        looked += 1
        if looked > _MOST_FOLDERS or _is_harmful(at, judging):
            return True
        pending += _subfolders(at)
    return False


def _subfolders(folder: str) -> list[str]:
    try:
        fd = open_root(folder)
    except OSError:
        return []
    try:
        names = list_names(fd) or []
        return [
            os.path.join(folder, name)
            for name in names
            if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
        ]
    except OSError:
        return []
    finally:
        os.close(fd)


def open_exec_paths(
    git_dir: int, *, finished: bool, tree: str | None = None, writable: tuple[str, ...] = (),
    top: str | None = None,
) -> list[str]:  # fmt: skip
    """The names in a git dir made by a command that would run code.

    What `git init` and `git clone` write is harmless: plain settings, and hooks that are samples.
    `finished`: the command is over, so an unfinished rebase is judged too. `tree`: the folder that
    its `core.worktree` may name. `writable`: where the command can write, so that no remote may
    be there. `top`: a work tree; what `git clone --recurse-submodules` makes of submodules in it
    is harmless too.
    """
    found = [name for name in (*GIT_DIR, *git_work_names.OLD_REMOTES) if _is_open(git_dir, name)]
    found += ["info"] if _is_open(git_dir, "info") else []
    configs = ("config",) if top is None else ("config", "config.worktree")
    for name in configs:
        if name in found and not is_open_config(git_dir, name, tree, writable):
            found.remove(name)
    if _is_open(git_dir, "modules") and _has_open_module(git_dir, writable, top):
        found.append("modules")
    if finished:
        found += [name for name in REBASE_STATE if _is_harmful_operation(git_dir, name)]
        found += ["index"] if is_harmful_index(git_dir, PlannedGit()) else []
        found += _links(git_dir)
        found += worktree_states.misleading_worktrees(git_dir, path_of(git_dir))
        found += harmful_worktrees(git_dir, PlannedGit())
    return found


def harmful_worktrees(git_dir: int, planned: PlannedGit) -> list[str]:
    """What would make git run a program in worktrees that a command added."""
    found: list[str] = []
    worktrees = enter(git_dir, worktree_states.FOLDER)
    if worktrees is None:
        return found
    try:
        for name in list_names(worktrees) or ():
            state = enter(worktrees, name)
            if state is None:
                continue
            try:
                harmful = [one for one in REBASE_STATE if _is_harmful_operation(state, one)]
                harmful += ["index"] if is_harmful_index(state, planned) else []
            finally:
                os.close(state)
            found += [f"{worktree_states.FOLDER}/{name}/{one}" for one in harmful]
    finally:
        os.close(worktrees)
    return found


def _links(git_dir: int) -> list[str]:
    """Links that git would write through; `git init` and `git clone` make none."""
    links = GitDirLinks(git_dir, "", None)
    plain = list_plain(git_dir)
    found = links.look(plain or {}, finished=True)
    for stored in (StoredLinks(git_dir, "", is_new=True), SymbolicRefs(git_dir, "", is_new=True)):
        found += stored.look()
    return [one.path for one in found]


def _is_harmful_operation(git_dir: int, name: str) -> bool:
    try:
        now = snapshot.keep(git_dir, name, snapshot.SnapshotBudget(entries=5000, bytes=16 << 20))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    files = snapshot.plain_files(now)
    return files is None or bool(judge.judge_operation_state(name, None, files))


def is_harmful_index(
    git_dir: int, planned: PlannedGit, *, tree: str | None = None, depth: int = 0
) -> bool:
    """An index of a new repository that leads into others: git status would run their programs.

    `tree`: where its files are, if that is known; see `harmful_check` for the rest.
    """
    try:
        os.stat("index", dir_fd=git_dir, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    data = read_file(git_dir, "index", _MOST_INDEX_BYTES)
    if data is None:
        return True
    path = path_of(git_dir)
    tree = tree or work_tree(git_dir, path)
    reasons = judge.judge_index(
        None, data, hash_bytes=hash_bytes(git_dir),
        is_harmful_repository=harmful_check(tree, path, planned, depth),
        shared=lambda name: read_file(
            git_dir, f"sharedindex.{name.decode()}", _MOST_INDEX_BYTES
        ),
    )  # fmt: skip
    return bool(reasons)


def module_dirs(git_dir: int) -> list[str] | None:
    """The git dirs in `modules`, without those in these; None if there is anything else."""
    found: list[str] = []
    pending = ["modules"]
    while pending:
        place = pending.pop()
        folder = enter_below(git_dir, place)
        plain = list_plain(folder, _MOST_MODULES) if folder is not None else None
        if folder is not None:
            os.close(folder)
        if plain is None or place.count("/") > _DEEPEST or len(found) > _MOST_MODULES:
            return None
        if "HEAD" in plain:
            found.append(place)
        else:  # a submodule's name may have slashes in it; a file is none of git's
            pending += [f"{place}/{name}" for name in plain]
    return found


def _has_open_module(git_dir: int, writable: tuple[str, ...], top: str | None) -> bool:
    modules = module_dirs(git_dir) if top is not None else None
    if modules is None:
        return True
    for name in modules:
        module = enter_below(git_dir, name)
        if module is None:
            return True
        try:
            tree = submodule_tree(module, top)
            if open_exec_paths(module, finished=False, tree=tree, writable=writable, top=top):
                return True
        finally:
            os.close(module)
    return False


def submodule_tree(module: int, top: str | None) -> str | None:
    """The folder of a submodule, which its git dir names; None if that is not in `top`, or does
    not lead back: git would write files there."""
    here = path_of(module)
    tree = os.path.normpath(work_tree(module, here))
    if top is None or not is_below(tree, top):
        return None
    return tree if worktree_states.leads_back(tree, here, must_exist=True) else None


def is_open_config(git_dir: int, name: str, tree: str | None, writable: tuple[str, ...]) -> bool:
    data = read_file(git_dir, name, git_config.MAX_BYTES)
    return data is None or not is_harmless_config(path_of(git_dir), data, tree, writable)


def is_harmless_config(
    git_dir: str, data: bytes, tree: str | None, writable: tuple[str, ...]
) -> bool:
    settings = git_config.doubtful(data)
    if settings is None:
        return False
    for key, value in settings:
        if key != "core.worktree" or os.path.realpath(f"{git_dir}/{value}") != tree:
            return False
    return not remotes_below(writable, git_dir, data)


def remotes_below(folders: tuple[str, ...], git_dir: str, config: bytes) -> set[str]:
    """Where `git push` would run hooks of a repository in one of these folders. `~` is the home of
    whoever runs git, which may be there."""
    base = os.path.dirname(git_dir) if os.path.basename(git_dir) == ".git" else git_dir
    remotes = git_config.local_remotes(git_config.entries(os.fsdecode(config)))
    places = {
        one if one[0] == "~" else os.path.realpath(os.path.join(base, one)) for one in remotes
    }
    return {one for one in places if any(one[0] == "~" or within(one, top) for top in folders)}


def _is_open(git_dir: int, name: str) -> bool:
    try:
        status = os.stat(name, dir_fd=git_dir, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if not stat.S_ISDIR(status.st_mode):
        return True
    if name == "hooks":
        return not _only_samples(git_dir)
    names = _names(git_dir, name)
    if name == "info":
        return names is None or not all(map(is_harmless_info, names))
    return name not in git_work_names.OLD_REMOTES or names is None or bool(names)


def is_harmless_info(name: str) -> bool:
    return name in ("exclude", "sparse-checkout") or is_info_work(name)


def _names(git_dir: int, name: str) -> list[str] | None:
    folder = enter(git_dir, name)
    if folder is None:
        return None
    try:
        return list_names(folder, _MOST_SAMPLES)
    finally:
        os.close(folder)


def _only_samples(git_dir: int) -> bool:
    try:
        fd = os.open("hooks", OPEN_FOLDER, dir_fd=git_dir)
    except OSError:
        return False
    try:
        with os.scandir(fd) as entries:
            names = [(e.name, e.is_file(follow_symlinks=False)) for e in entries]
    finally:
        os.close(fd)
    return len(names) <= _MOST_SAMPLES and all(
        is_file and name.endswith(".sample") for name, is_file in names
    )
