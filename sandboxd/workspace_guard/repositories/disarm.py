"""Disarm git repositories that a command made in new folders, where another repository may lead
git into them: a commit of a command can hold a link to one, and a `git checkout` of the user's puts
it into the index.

Objects, refs, index and files stay. What would run programs is moved aside piece by piece, and a
config with the harmless lines takes the place of the original. What is still harmful then, or is
no git dir of its own, is moved aside whole, as in folders that were there before.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterable, Iterator

import msgspec

from sandboxd.platform.current import files
from sandboxd.platform.open_flags import NO_FOLLOW, PRIVATE
from sandboxd.policy.paths.within import folders_above, is_below, within
from sandboxd.policy.protected import git_config
from sandboxd.policy.protected.git_dir import is_git_dir
from sandboxd.posix.descriptors import change_mode, give_to
from sandboxd.workspace_guard.dirfd import find, list_plain, open_folder, open_root, read_file
from sandboxd.workspace_guard.git.planned_git import PlannedGit
from sandboxd.workspace_guard.git.repository import (
    is_harmless_config,
    is_harmless_info,
    module_dirs,
    open_exec_paths,
    submodule_tree,
)
from sandboxd.workspace_guard.quarantine.quarantine import Moved, Quarantine
from sandboxd.workspace_guard.repositories import planted_git
from sandboxd.workspace_guard.repositories.planted_git import MOST_JUDGED, one_at_a_time

log = logging.getLogger(__name__)
_MOST_ROUNDS = 3
_MOST_NAMES = 256
_CONFIGS = ("config", "config.worktree")


def is_led_into(folder: str) -> bool:
    """Whether a repository lies around it, which may have a link to it."""
    return any(files.lexists(f"{one}/.git") or is_git_dir(one) for one in folders_above(folder))


def disarm(workspace: str, folders: Iterable[str], planned: PlannedGit) -> list[Moved]:
    """For a thread."""
    # Remotes where each repository is disarmed run no hooks of a command.
    writable = [one for one in planned.writable if not is_led_into(f"{one}/x")]
    planned = msgspec.structs.replace(planned, writable=tuple(writable))
    with one_at_a_time:
        root = open_root(workspace)
        quarantine = Quarantine(root, workspace)
        try:
            return [*_disarmed(_Place(root, workspace, planned, quarantine), folders)]
        finally:
            quarantine.close()
            os.close(root)


class _Place(msgspec.Struct, frozen=True):
    root: int
    path: str
    planned: PlannedGit
    quarantine: Quarantine

    def take(self, path: str) -> Iterator[Moved]:
        with find(self.root, self.path, path) as entry:
            if entry is not None:
                log.warning("%s is moved aside: it made a new repository run programs", path)
                yield self.quarantine.take(entry)


def _disarmed(place: _Place, folders: Iterable[str]) -> Iterator[Moved]:
    """Those in others first, whose index leads to them; what only leads to one at last."""
    in_order = sorted(folders, key=lambda one: (os.path.isfile(f"{one}/.git"), -one.count("/")))
    for count, folder in enumerate(in_order):
        unread = count >= MOST_JUDGED
        if not unread and os.path.realpath(folder) == folder:
            if _is_worktree_of_a_neighbour(folder, place.path):
                continue
            git_dir = f"{folder}/.git" if os.path.lexists(f"{folder}/.git") else folder
            if not os.path.islink(git_dir):
                yield from _disarm_git_dir(place, git_dir, folder, top=folder)
        yield from planted_git.undo_one(
            place.root, place.path, folder, place.planned, place.quarantine,
            unread=unread, writable=place.planned.writable,
        )  # fmt: skip


def _is_worktree_of_a_neighbour(folder: str, root: str) -> bool:
    """Of a repository around it, or of one that was disarmed, or is the user's."""
    common = planted_git.common_dir(folder)
    if common is None or not within(common, root):
        return False
    own = os.path.dirname(common) if os.path.basename(common) == ".git" else common
    return is_below(folder, own) or is_led_into(own)


def _disarm_git_dir(
    place: _Place, path: str, tree: str | None, *, top: str
) -> Iterator[Moved]:  # fmt: skip
    """`tree`: its work tree; `top`: that of the repository that it is a submodule of."""
    git_dir = open_folder(place.root, place.path, path)
    if git_dir is None:
        return
    writable = place.planned.writable
    try:
        for module in module_dirs(git_dir) or ():
            yield from _disarm_module(place, f"{path}/{module}", top)
        for _ in range(_MOST_ROUNDS):
            found = open_exec_paths(git_dir, finished=True, tree=tree, writable=writable, top=top)
            if not found:
                return
            for name in found:
                if name in _CONFIGS:
                    yield from _replace_config(place, git_dir, path, name, tree)
                else:
                    for inner in _harmful_in(git_dir, name):
                        yield from place.take(f"{path}/{inner}")
    finally:
        os.close(git_dir)


def _disarm_module(place: _Place, path: str, top: str) -> Iterator[Moved]:
    module = open_folder(place.root, place.path, path)
    if module is None:
        return
    try:
        tree = submodule_tree(module, top)
    finally:
        os.close(module)
    yield from _disarm_git_dir(place, path, tree, top=top)


def _harmful_in(git_dir: int, name: str) -> list[str]:
    """The entries of a folder that git also has harmless ones in."""
    if name not in ("hooks", "info"):
        return [name]
    folder = open_folder(git_dir, "/", f"/{name}")
    plain = list_plain(folder, _MOST_NAMES) if folder is not None else None
    if folder is not None:
        os.close(folder)
    if not plain:
        return [name]
    is_harmless = is_harmless_info if name == "info" else _is_sample
    found = [f"{name}/{one}" for one, ok in plain.items() if not (ok and is_harmless(one))]
    return found or [name]


def _is_sample(name: str) -> bool:
    return name.endswith(".sample")


def _replace_config(
    place: _Place, git_dir: int, path: str, name: str, tree: str | None
) -> Iterator[Moved]:
    data = read_file(git_dir, name, git_config.MAX_BYTES) or b""
    yield from place.take(f"{path}/{name}")
    draft = _harmless_config(path, data, tree, place.planned.writable)
    with contextlib.suppress(OSError):  # judged again: without it, or with another one
        _write(git_dir, name, draft)


def _harmless_config(
    git_dir: str, data: bytes, tree: str | None, writable: tuple[str, ...]
) -> bytes:
    def is_own_tree(key: str, value: str) -> bool:
        is_tree = key == "core.worktree" and tree is not None
        return is_tree and os.path.realpath(f"{git_dir}/{value}") == tree

    lines = git_config.harmless_lines(data, is_own_tree)
    is_complete = is_harmless_config(git_dir, lines, tree, writable)
    return lines if is_complete else git_config.smallest(data)


def _write(git_dir: int, name: str, data: bytes) -> None:
    """A file of the folder's owner."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | PRIVATE
    fd = os.open(name, flags, 0o600, dir_fd=git_dir)
    try:
        owner = os.fstat(git_dir)
        if files.is_root():
            give_to(fd, owner.st_uid, owner.st_gid)
        if os.write(fd, data) != len(data):
            os.unlink(name, dir_fd=git_dir)
        change_mode(fd, 0o600 | stat.S_IMODE(owner.st_mode) & 0o066)
    finally:
        os.close(fd)
