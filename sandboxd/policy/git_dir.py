"""A git dir's doors: the paths in it through which git runs code, and which of them must stay shut.

What hides here: how git finds its config and hooks (commondir, includes, core.hooksPath), and how
submodules and worktrees nest in one git dir. Everything is read as data; git is never run, since a
workspace's own config could make it run code.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sandboxd.policy import git_config, hostfs
from sandboxd.policy.plan import Access, Grant, Identity, Protected
from sandboxd.policy.protected_data import GIT_DIR, HOOKS, REBASE_STATE

_MOST_LINKS = 40  # the kernel's own limit
_MOST_MODULES = 256
_DEEPEST_MODULE = 8
_MOST_WORKTREES = 256
_MOST_INCLUDES = 32


@dataclass(slots=True)
class Doors:
    """`grants`: writable folders inside a protected one."""

    protected: list[Protected] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)

    def extend(self, other: Doors) -> None:
        self.protected += other.protected
        self.grants += other.grants


def inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def kept(path: str, root: str) -> list[Protected]:
    """How `path` below `root` is kept as it is: mounted if it can be, watched otherwise."""
    return kept_in(os.path.dirname(path), [os.path.basename(path)], root)


def kept_in(folder: str, names: Iterable[str], root: str) -> list[Protected]:
    """The same for several names in one folder, which is resolved once."""
    parent = hostfs.realpath(folder)
    if not inside(parent, root):
        return []  # it leads out of what is writable
    return [p for name in names for p in _kept(f"{parent}/{name}", root)]


def _kept(path: str, root: str) -> list[Protected]:
    try:
        mode = hostfs.lstat(path).st_mode
    except OSError:
        return [Protected(path, root, present=False)]
    if not stat.S_ISLNK(mode):
        return [Protected(path, root, present=True, is_dir=stat.S_ISDIR(mode))]
    # A symlink cannot be a mount point: the link is watched, and so is every place on its way; what
    # it leads to is mounted, or watched if it is not there yet.
    found = [Protected(path, root, present=False)]
    for place in _on_the_way(path):
        if not inside(place, root) or inside(root, place):
            break
        there = hostfs.lexists(place) and not hostfs.islink(place)
        is_dir = there and hostfs.isdir(place)
        found.append(Protected(place, root, present=there, is_dir=is_dir))
    return found


def _on_the_way(path: str) -> Iterator[str]:
    """The names that the symlink `path` leads through, each with a canonical parent: links in the
    middle of a target, links that it ends in, and at last what is no link or is missing."""
    pending = [hostfs.readlink(path)]
    at = hostfs.realpath(os.path.dirname(path))
    for _ in range(_MOST_LINKS):
        if not pending:
            return
        target = pending.pop()
        at = "/" if target.startswith("/") else at
        parts = [part for part in target.split("/") if part not in ("", ".")]
        for index, part in enumerate(parts):
            if part == "..":
                at = os.path.dirname(at)
                continue
            step = f"{at.rstrip('/')}/{part}"
            last = index == len(parts) - 1 and not pending
            is_link = hostfs.islink(step)
            if is_link or last:
                yield step
            if is_link:
                pending += filter(None, ["/".join(parts[index + 1 :]), hostfs.readlink(step)])
                break
            if not hostfs.lexists(step):
                if not last:
                    yield step  # whatever is made here decides about the rest
                return
            at = step


def grant(path: str, access: Access) -> list[Grant]:
    """An implied grant of a canonical path; nothing if it is gone."""
    try:
        return [Grant(path, access, Identity.of(hostfs.lstat(path)), "preset")]
    except OSError:
        return []


def looks_like_git_dir(path: str) -> bool:
    return hostfs.lexists(os.path.join(path, "HEAD")) and (
        hostfs.isdir(os.path.join(path, "objects"))
        or hostfs.lexists(os.path.join(path, "commondir"))
    )


@dataclass(frozen=True, slots=True)
class Around:
    """Where a git dir is: in the writable `root`, for files in the writable `workspace`."""

    root: str
    workspace: str
    work_tree: str | None
    user_configs: tuple[str, ...] = ()


def doors(git_dir: str, around: Around) -> Doors:
    """The doors of `git_dir` and of all that it contains."""
    found = Doors()
    found.protected += kept_in(git_dir, GIT_DIR, around.root)
    found.protected += rebase_state(git_dir, around.root)
    found.protected += configured(git_dir, around)
    found.extend(_modules(git_dir, around))
    found.extend(_worktrees(git_dir, around))
    return found


def rebase_state(git_dir: str, root: str) -> list[Protected]:
    return [
        Protected(os.path.join(git_dir, name), root, present=False, rule="unfinished_rebase")
        for name in REBASE_STATE
    ]


def configured(git_dir: str, around: Around) -> list[Protected]:
    """What config names: included files, hook folders, the monitor that every status runs."""
    own = [os.path.join(git_dir, name) for name in ("config", "config.worktree")]
    base = around.work_tree or git_dir
    paths: list[str] = []
    hooks: list[str] = []
    for file, entries in _with_includes([*own, *around.user_configs]):
        if file not in own:
            paths.append(file)
        for key, value in entries:
            if key == "core.hookspath":
                hooks.append(os.path.join(base, os.path.expanduser(value)))
            elif key == "core.fsmonitor" and "/" in value:
                paths.append(os.path.join(base, value.split()[0]))
    found: list[Protected] = []
    for root in sorted({around.root, around.workspace}):
        found += [p for path in paths for p in _kept_if_below(path, root)]
        found += [p for path in hooks for p in _hooks(path, root)]
    return found


def _kept_if_below(path: str, root: str) -> list[Protected]:
    return kept(path, root) if inside(os.path.normpath(path), root) else []


def _hooks(path: str, root: str) -> list[Protected]:
    path = os.path.normpath(path)
    if inside(root, hostfs.realpath(path)):
        # The folder holds the whole workspace: only the hooks in it are kept.
        return kept_in(path, HOOKS, root)
    return _kept_if_below(path, root)


def _with_includes(files: list[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each config file and, whatever their conditions, those that it includes."""
    pending = list(files)
    seen: set[str] = set()
    while pending and len(seen) < _MOST_INCLUDES + len(files):
        file = pending.pop(0)
        if file in seen:
            continue
        seen.add(file)
        entries = read_config(file)
        yield file, entries
        for key, value in entries:
            if key == "include.path" or (key.startswith("includeif.") and key.endswith(".path")):
                target = os.path.expanduser(value)
                pending.append(os.path.normpath(os.path.join(os.path.dirname(file), target)))


def read_config(path: str) -> list[tuple[str, str]]:
    return git_config.entries(read_text(path, git_config.MAX_BYTES))


def read_text(path: str, most: int = 4096) -> str:
    """A regular file's text, or nothing. Does not block on a pipe."""
    try:
        return os.fsdecode(hostfs.read(path, most))
    except (OSError, ValueError):
        return ""


def _modules(git_dir: str, around: Around) -> Doors:
    """`modules` is read-only, so that no new one appears; those that are there can be worked in."""
    folder = os.path.join(git_dir, "modules")
    found = Doors(kept(folder, around.root))
    if not hostfs.isdir(folder) or hostfs.islink(folder):
        return found
    modules = list(_module_dirs(folder, _DEEPEST_MODULE))
    if len(modules) > _MOST_MODULES:
        return found
    for module in modules:
        work_tree = dict(read_config(os.path.join(module, "config"))).get("core.worktree")
        tree = os.path.normpath(os.path.join(module, work_tree)) if work_tree else None
        found.grants += grant(module, "write")
        found.extend(doors(module, replace(around, root=module, work_tree=tree)))
    return found


def _module_dirs(folder: str, depth: int) -> Iterator[str]:
    """Git dirs below a `modules` folder; a module's name may have slashes in it."""
    if depth == 0:
        return
    try:
        entries = hostfs.entries(folder)
        names = [e.path for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in sorted(names)[: _MOST_MODULES + 1]:
        if looks_like_git_dir(path):
            yield path
        else:
            yield from _module_dirs(path, depth - 1)


def _worktrees(git_dir: str, around: Around) -> Doors:
    """`worktrees` is read-only; the state of those that lie in the workspace is not.

    One mount for the folder, and none for each worktree elsewhere: removing one of those on the
    host would take a mount away under the running command.
    """
    folder = os.path.join(git_dir, "worktrees")
    if not hostfs.isdir(folder) or hostfs.islink(folder):
        return Doors()  # `git worktree add` inside makes one
    found = Doors(kept(folder, around.root))
    for name in sorted(hostfs.listdir(folder))[:_MOST_WORKTREES]:
        state = os.path.join(folder, name)
        back = read_text(os.path.join(state, "gitdir")).strip()
        tree = hostfs.realpath(os.path.dirname(os.path.join(state, back))) if back else ""
        if back and inside(tree, around.workspace) and not hostfs.islink(state):
            found.grants += grant(state, "write")
            found.protected += worktree_state(state)
            found.protected += kept(os.path.join(tree, ".git"), around.workspace)
    return found


def worktree_state(state: str) -> list[Protected]:
    names = ("gitdir", "commondir", "config.worktree")
    return kept_in(state, names, state) + rebase_state(state, state)
