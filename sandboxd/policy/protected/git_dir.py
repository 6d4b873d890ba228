"""The paths in a git dir through which git runs code, and which of them must not change.

This module knows how git finds its config and hooks (commondir, includes, core.hooksPath), and how
submodules and worktrees nest in one git dir. Everything is read as data; git is never run, since a
workspace's own config could make it run code.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import shlex
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from sandboxd.platform.current import files
from sandboxd.policy.data import git_work_names
from sandboxd.policy.data.protected_names import GIT_DIR, HOOKS
from sandboxd.policy.display_names import named
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.homes import expand
from sandboxd.policy.paths.recording import MOST_LISTED, Filter
from sandboxd.policy.paths.within import within
from sandboxd.policy.plan import Access, Grant, Identity, Protected, Rule
from sandboxd.policy.protected import closed_ways, git_config, git_programs, scan_limits
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.policy.protected.protect import (
    LEVELS,
    links_to,
    protect,
    protect_names,
    protect_target,
)

_MOST_MODULES = 256
_DEEPEST_MODULE = 8
_MOST_WORKTREES = 256


@dataclass(slots=True)
class ExecPaths:
    """`grants`: writable folders inside a protected one."""

    protected: list[Protected] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    nested: Repositories = field(default_factory=Repositories)
    warnings: list[str] = field(default_factory=list)

    def extend(self, other: ExecPaths) -> None:
        self.protected += other.protected
        self.grants += other.grants
        self.warnings += other.warnings


def grant(path: str, access: Access) -> list[Grant]:
    """An implied grant of a canonical path; nothing if it is gone."""
    try:
        return [Grant(path, access, Identity.of(recording_fs.lstat(path)), "preset")]
    except OSError:
        return []


def looks_like_git_dir(path: str) -> bool:
    return recording_fs.lexists(posixpath.join(path, "HEAD")) and (
        recording_fs.isdir(posixpath.join(path, "objects"))
        or recording_fs.lexists(posixpath.join(path, "commondir"))
    )


_HEAD = re.compile(rb"ref:\s*refs/|[0-9a-fA-F]{40}")


def is_git_dir(path: str) -> bool:
    """Whether git takes `path` for a git dir when it looks for one."""
    head = posixpath.join(path, "HEAD")
    if not recording_fs.lexists(head) or not _is_head(head):
        return False
    if recording_fs.lexists(posixpath.join(path, "commondir")):
        return True
    return all(recording_fs.isdir(posixpath.join(path, name)) for name in ("objects", "refs"))


def _is_head(path: str) -> bool:
    if recording_fs.islink(path):
        return True  # an old form of a reference to a branch
    try:
        return is_head_content(recording_fs.read(path, 256))
    except PermissionError:
        closed_ways.refuse(path)
        return False
    except OSError:
        return False


def is_head_content(data: bytes) -> bool:
    return _HEAD.match(data) is not None


class GitDirContext(msgspec.Struct, frozen=True):
    """Where a git dir is: in the writable `root`, for files in the writable `workspace`."""

    root: str
    workspace: str
    work_tree: str | None
    git_homes: tuple[str, ...] = ()  # homes whose settings git follows
    rule: Rule = "git_dir"


def exec_paths(git_dir: str, around: GitDirContext) -> ExecPaths:
    """What in `git_dir`, and in all git dirs that it contains, stays as it is."""
    if recording_fs.isdir(git_dir) and not is_readable(git_dir) and recording_fs.isdir(git_dir):
        raise scan_limits.Unprotectable(
            f"the git dir {git_dir} cannot be read, so it cannot be protected",
            field="workspace", remedy=f"give yourself access: chmod u+rwx {shlex.quote(git_dir)}",
        )  # fmt: skip
    found = ExecPaths()
    found.protected.append(
        Protected(git_dir, around.root, present=False, is_dir=True, rule=around.rule)
    )
    found.protected += protect_names(git_dir, _kept_names(git_dir, around.rule), around.root)
    found.protected += _info(git_dir, around.root)
    found.protected += configured_paths(git_dir, around)
    found.extend(_modules(git_dir, around))
    found.extend(_worktrees(git_dir, around))
    return found


def is_readable(git_dir: str) -> bool:
    """By its owner too: root without capabilities is kept out by the mode as a user is."""
    needed = stat.S_IRUSR | stat.S_IXUSR
    try:
        recording_fs.select(git_dir, git_work_names.is_kept)
        return recording_fs.lstat(git_dir).st_mode & needed == needed
    except OSError as error:
        if error.errno == errno.E2BIG:
            scan_limits.check_foreign_names(git_dir, MOST_LISTED)
        return False


def _kept_names(git_dir: str, rule: Rule) -> list[str]:
    """What git runs code from, whether it is there or not, and all that is no daily work."""
    names = [*GIT_DIR, *git_work_names.OLD_REMOTES]
    if rule != "bare_git_dir":
        names += _foreign_names(git_dir)
    return sorted(set(names))


def _foreign_names(git_dir: str) -> list[str]:
    names = [entry.name for entry in _selected(git_dir, git_work_names.is_kept)]
    scan_limits.check_foreign_names(git_dir, len({*names}.difference(GIT_DIR)))
    return names


def _selected(folder: str, wanted: Filter) -> list[files.DirEntry]:
    try:
        return recording_fs.select(folder, wanted)
    except OSError:
        return []


def _info(git_dir: str, root: str) -> list[Protected]:
    """`info` itself stays writable: git gc writes `info/refs`."""
    folder = posixpath.join(git_dir, "info")
    if recording_fs.islink(folder):
        return protect(folder, root)
    found = [Protected(folder, root, present=False, is_dir=True, rule="git_info")]
    names = ["attributes", *(e.name for e in _selected(folder, git_work_names.is_kept_info))]
    return found + protect_names(folder, sorted(set(names)), root)


def configured_paths(git_dir: str, around: GitDirContext) -> list[Protected]:
    """What config names: included files, hook folders, and programs that git runs."""
    own = [posixpath.join(git_dir, name) for name in ("config", "config.worktree")]
    common = read_text(posixpath.join(git_dir, "commondir")).strip()
    if common:  # a linked worktree
        own.append(posixpath.normpath(posixpath.join(git_dir, common, "config")))
    base = around.work_tree or git_dir
    paths: list[str] = []
    hooks = [posixpath.join(posixpath.dirname(file), "hooks") for file in own[1:]]
    remotes: list[str] = []
    programs, homes = 0, around.git_homes
    for file, entries in _with_includes(git_dir, [*own, *_user_configs(homes)], homes):
        paths.append(file)
        remotes += [p for one in git_config.local_remotes(entries) for p in expand(one, homes)]
        for key, value in entries:
            if key in ("core.hookspath", "init.templatedir"):
                for path in expand(value, homes):
                    hooks += _hook_folders(posixpath.join(base, path))
            elif git_programs.is_command(key, value):
                programs += 1
                scan_limits.check_programs(git_dir, programs, value)
                paths += git_programs.paths(key, value, base, around.workspace, homes)
    found: list[Protected] = []
    for root in sorted({around.root, around.workspace}):
        found += [p for path in paths for p in protect_target(path, root, LEVELS)]
        found += [p for path in hooks for p in _hooks(path, root)]
        found += [p for path in remotes for p in links_to(posixpath.join(base, path), root)]
    return found


def configured_paths_elsewhere(git_dir: str, around: GitDirContext) -> list[Protected]:
    """The same without the config and the hooks of the git dir itself."""
    own = [posixpath.join(git_dir, name) for name in GIT_DIR]
    return [one for one in configured_paths(git_dir, around) if one.path not in own]


def _hook_folders(path: str) -> list[str]:
    """husky's `.husky/_` holds stubs that call the files in the folder above."""
    path = path.rstrip("/")
    return [path, posixpath.dirname(path)] if posixpath.basename(path) == "_" else [path]


def _hooks(path: str, root: str) -> list[Protected]:
    if not within(root, recording_fs.realpath(path)):
        return protect_target(path, root, LEVELS)
    # The folder holds the whole workspace: only the hooks in it are kept.
    return [p for name in HOOKS for p in protect_target(posixpath.join(path, name), root, LEVELS)]


def _user_configs(homes: Iterable[str]) -> list[str]:
    found = [f"{home}/{name}" for home in homes for name in (".config/git/config", ".gitconfig")]
    return ["/etc/gitconfig", *found] if found else []


def _with_includes(
    git_dir: str, files: list[str], homes: tuple[str, ...]
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each config file and, whatever their conditions, those that it includes."""
    pending = list(files)
    seen: set[str] = set()
    while pending:
        file = pending.pop(0)
        real = recording_fs.realpath(file)
        if real in seen:
            continue
        seen.add(real)
        scan_limits.check_includes(git_dir, len(seen) - len(files))
        entries = read_config(file)
        yield file, entries
        for key, value in entries:
            if key == "include.path" or (key.startswith("includeif.") and key.endswith(".path")):
                folder = posixpath.dirname(file)
                pending += [posixpath.join(folder, path) for path in expand(value, homes)]


def read_config(path: str) -> list[tuple[str, str]]:
    text = read_text(path, git_config.MAX_BYTES + 1)
    if len(os.fsencode(text)) > git_config.MAX_BYTES:  # git reads the rest, too
        raise scan_limits.long_settings(path, git_config.MAX_BYTES)
    scan_limits.count(scan_limits.SETTINGS, len(text))
    return git_config.entries(text)


def read_text(path: str, most: int = 4096) -> str:
    """A regular file's text, or nothing. Does not block on a pipe."""
    try:
        return os.fsdecode(recording_fs.read(path, most))
    except PermissionError:
        closed_ways.refuse(path)
        return ""
    except (OSError, ValueError):
        return ""


def _modules(git_dir: str, around: GitDirContext) -> ExecPaths:
    """`modules` is read-only, so that no new one appears; those that are there can be worked in."""
    folder = posixpath.join(git_dir, "modules")
    found = ExecPaths(protect(folder, around.root))
    if not recording_fs.isdir(folder) or recording_fs.islink(folder):
        return found
    modules = list(_module_dirs(folder, _DEEPEST_MODULE))
    if len(modules) > _MOST_MODULES:
        return found
    for module in modules:
        work_tree = dict(read_config(posixpath.join(module, "config"))).get("core.worktree")
        tree = posixpath.normpath(posixpath.join(module, work_tree)) if work_tree else None
        found.grants += grant(module, "write")
        inner = replace(around, root=module, work_tree=tree, rule="git_dir")
        found.extend(exec_paths(module, inner))
    return found


def _module_dirs(folder: str, depth: int) -> Iterator[str]:
    """Git dirs below a `modules` folder; a module's name may have slashes in it."""
    if depth == 0:
        return
    try:
        entries = recording_fs.entries(folder)
        names = [e.path for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in sorted(names)[: _MOST_MODULES + 1]:
        if looks_like_git_dir(path):
            yield path
        else:
            yield from _module_dirs(path, depth - 1)


def _worktrees(git_dir: str, around: GitDirContext) -> ExecPaths:
    """`worktrees` is read-only; the state of those that lie in the workspace is not.

    One mount for the folder, and none for each worktree elsewhere: removing one of those on the
    host would take a mount away under the running command.
    """
    folder = posixpath.join(git_dir, "worktrees")
    if not recording_fs.isdir(folder) or recording_fs.islink(folder):
        return ExecPaths()  # `git worktree add` inside makes one
    found = ExecPaths(protect(folder, around.root))
    try:
        names = sorted(recording_fs.listdir(folder))
    except OSError as error:
        if error.errno not in recording_fs.VANISHED:
            raise
        return found
    for name in names[:_MOST_WORKTREES]:
        state = posixpath.join(folder, name)
        back = read_text(posixpath.join(state, "gitdir")).strip()
        tree = recording_fs.realpath(posixpath.dirname(posixpath.join(state, back))) if back else ""
        if back and within(tree, around.workspace) and not recording_fs.islink(state):
            try:
                found.protected += worktree_state(state)
            except scan_limits.TooMuch as error:
                found.warnings.append(f"the worktree in {named(tree)} is read-only: {error}")
            else:
                found.grants += grant(state, "write")
            found.protected += protect(posixpath.join(tree, ".git"), around.workspace)
    return found


def worktree_state(state: str) -> list[Protected]:
    found = [Protected(state, state, present=False, is_dir=True, rule="git_dir")]
    names = {"gitdir", "commondir", "config.worktree", *_foreign_names(state)}
    return found + protect_names(state, sorted(names), state)
