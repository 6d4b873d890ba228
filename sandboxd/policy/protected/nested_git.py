"""Repositories in folders of a workspace: found by a bounded look, near the top first.

Each of the near folders is noted with the names of its subfolders only, so that a plan stays valid
while files come and go. The others are searched once in a while (`distant_git`).
"""

from __future__ import annotations

import errno
import posixpath
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from shlex import quote

from sandboxd.platform.current import files
from sandboxd.policy.data.protected_names import OTHER_EXEC, OTHER_REPOSITORIES
from sandboxd.policy.display_names import named
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.closed_folders import closing
from sandboxd.policy.paths.within import within
from sandboxd.policy.protected import distant_git
from sandboxd.policy.protected.distant_git import MOST_UNSEARCHED, DistantFolders
from sandboxd_proto.errors import PathDenied
from sandboxd_proto.locations import KEPT_FOLDER

# What makes a folder a repository.
MARKS = (".git", "HEAD", "objects", "refs", "commondir", *OTHER_REPOSITORIES)
MOST_FOLDERS = 256  # near ones
DEEPEST = 5
MOST_REPOSITORIES = 32
MOST_READ_ONLY = 128
# Of this thread's CPU time, so that a busy machine does not change what is found; and of any.
MOST_CPU_S = 0.25
MOST_S = 5.0
# Where package managers put what they fetched: too many folders, and no place to run git in.
_SKIPPED = frozenset(("node_modules", "site-packages", ".git", ".venv", "venv"))
_LISTED = frozenset(name.lower() for name in MARKS)  # some may be links to folders


@dataclass(frozen=True, slots=True)
class Repositories:
    """`folders` are the near ones; `paths`, near and distant, have a `.git`, or are bare
    repositories.

    `others`: the `.hg` and the like in them. `roots`: the workspace, then other writable folders.
    `main_checkouts`: git dirs that a worktree in the workspace shares with another checkout.
    `closed`: folders in which there may be others. `read_only`: those that hold more of them than
    can be protected one by one, or were not searched; a root itself if even these are too many.
    `distant`: the other folders, of each root that has more than the near ones. `git_homes`: those
    whose settings git follows in every repository.
    """

    paths: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    main_checkouts: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    git_homes: tuple[str, ...] = ()
    distant: tuple[DistantFolders, ...] = field(default=(), compare=False)

    def joined(self, more: Repositories) -> Repositories:
        """With those of another writable folder, which may contain the workspace."""
        return replace(
            self,
            paths=_each_once(self.paths, more.paths),
            others=_each_once(self.others, more.others),
            roots=_each_once(self.roots, more.roots),
            folders=_each_once(self.folders, more.folders),
            closed=_each_once(self.closed, more.closed),
            read_only=_each_once(self.read_only, more.read_only),
            warnings=(*self.warnings, *more.warnings),
            distant=(*self.distant, *more.distant),
        )

    def with_warnings(self, more: Iterable[str]) -> Repositories:
        return replace(self, warnings=(*self.warnings, *more))

    def with_settings(
        self, main_checkouts: tuple[str, ...], git_homes: tuple[str, ...]
    ) -> Repositories:
        return replace(self, main_checkouts=main_checkouts, git_homes=git_homes)

    def by_root(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """Paths in the folders, by the innermost of the roots that they lie in."""
        found: dict[str, list[str]] = {}
        for path in paths:
            root = max((root for root in self.roots if within(path, root)), key=len)
            found.setdefault(root, []).append(path)
        return found


def is_step(name: str, is_dir: bool) -> bool:
    """For listings: a folder to look into, or what makes its folder a repository."""
    return (is_dir and name not in _SKIPPED) or name.lower() in _LISTED


def find(workspace: str, most: int | None = None) -> Repositories:
    """The repositories in `workspace`, itself among them; `most`: of the near folders."""
    most = MOST_FOLDERS if most is None else most
    repositories: list[str] = []
    others: list[str] = []
    folders: list[str] = []
    distant: list[str] = []
    closed: list[str | None] = []
    beyond: list[str] = []
    unsearched: tuple[str, ...] = ()
    far: tuple[DistantFolders, ...] = ()
    pending = deque([(workspace, 0)])
    until, until_cpu = time.monotonic() + MOST_S, time.thread_time() + MOST_CPU_S
    while pending:
        folder, depth = pending.popleft()
        late = time.monotonic() > until or time.thread_time() > until_cpu
        if late or len(folders) >= most or depth > DEEPEST:
            distant.append(folder)
            continue
        try:
            entries = recording_fs.select(folder, is_step)
        except OSError as error:
            if error.errno == errno.E2BIG:
                if folder == workspace:
                    return _all_read_only(workspace)
                beyond.append(folder)
            closed.append(closing(folder, error))
            continue
        folders.append(folder)
        names = _names(folder, entries)
        others += _others(folder, names)
        repositories += [folder] if is_repository(folder, names) else []
        for path in sorted(distant_git.inner(entries)):
            if distant_git.is_store(path):
                distant.append(path)
            else:
                pending.append((path, depth + 1))
    if distant:
        further = distant_git.search(workspace, distant, is_step)
        for folder in further.candidates:
            names = _names_again(folder)
            repositories += [folder] if is_repository(folder, names) else []
            others += _others(folder, names)
        closed += further.closed
        unsearched, far = further.unsearched, (further.folders,)
        if workspace in unsearched or len(unsearched) > MOST_UNSEARCHED:
            distant_git.forget(workspace)
            return _all_read_only(workspace)
    warnings = [_incomplete(workspace)] if unsearched else []
    warnings += [_too_crowded(folder) for folder in beyond[:1]]
    beyond += unsearched
    if len(repositories) + len(others) > MOST_REPOSITORIES:
        warnings.append(_too_many(workspace))
        beyond += repositories[MOST_REPOSITORIES:]
        repositories = repositories[:MOST_REPOSITORIES]
        left = MOST_REPOSITORIES - len(repositories)
        beyond += map(posixpath.dirname, others[left:])
        others = others[:left]
    read_only = _around(workspace, {folder for folder in beyond if folder != workspace})
    if len(read_only) > MOST_READ_ONLY:
        return _all_read_only(workspace)
    return Repositories(
        tuple(repositories), tuple(others), (workspace,), tuple(folders), tuple(warnings),
        closed=_few(workspace, closed), read_only=read_only, distant=far,
    )  # fmt: skip


def _all_read_only(workspace: str) -> Repositories:
    """A command may have made most of them: with the others they are too many to be protected."""
    said = (
        f"commands can only read {named(workspace)}: it has more folders with repositories than "
        "can be protected; choose the folder of one project as the workspace, or name it in "
        "fs_write_allow"
    )
    return Repositories(roots=(workspace,), read_only=(workspace,), warnings=(said,))


def _few(workspace: str, closed: Iterable[str | None]) -> tuple[str, ...]:
    """PathDenied where there are more than can be protected, of which one may be important."""
    found = _around(workspace, {folder for folder in closed if folder is not None})
    if len(found) > MOST_READ_ONLY:
        raise PathDenied(
            f"{len(found)} folders in {named(workspace)} cannot be looked into, so repositories "
            "in them cannot be protected",
            field="workspace",
            remedy=f"open them again: chmod -R u+rwX {quote(workspace)}",
        )
    return found


def _around(workspace: str, folders: set[str]) -> tuple[str, ...]:
    """These, or the workspace's own folders that hold them if they are too many."""
    if len(folders) > MOST_READ_ONLY:
        skip = len(workspace.rstrip("/")) + 1
        folders = {folder[:skip] + folder[skip:].partition("/")[0] for folder in folders}
    return tuple(sorted(folders))


def _each_once(some: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*some, *more)))


def _others(folder: str, names: set[str]) -> list[str]:
    return [posixpath.join(folder, name) for name in OTHER_REPOSITORIES if name in names]


def _names_again(folder: str) -> set[str]:
    """Of a folder that an earlier search has found."""
    try:
        return _names(folder, recording_fs.select(folder, is_step))
    except OSError:
        return set()


def _names(folder: str, entries: Iterable[files.DirEntry]) -> set[str]:
    """With those of `MARKS` that the file system finds under another spelling."""
    names = {entry.name for entry in entries}
    others = {name.lower() for name in names}
    return names | {
        one
        for one in MARKS
        if one not in names
        and one.lower() in others
        and recording_fs.lexists(posixpath.join(folder, one))
    }


def is_repository(folder: str, names: set[str]) -> bool:
    if ".git" in names:
        return True
    is_bare = "HEAD" in names and ("commondir" in names or {"objects", "refs"} <= names)
    # A git dir that was moved aside looks like one.
    return is_bare and not any(name.startswith(KEPT_FOLDER) for name in folder.split("/"))


def exec_paths(mark: str) -> list[str]:
    """What a repository of other version control runs programs by: `mark` is its `.hg`."""
    folder, name = posixpath.split(mark)
    return [f"{folder}/{one}" for one in OTHER_EXEC if one.startswith(f"{name}/")]


def _incomplete(workspace: str) -> str:
    return (
        f"not every folder of {named(workspace)} was searched for repositories: commands can only "
        "read the others; choose a smaller folder as the workspace"
    )


def _too_crowded(folder: str) -> str:
    return (
        f"{named(folder)} has too many entries to be searched for repositories: commands can only "
        "read it; choose a smaller folder as the workspace"
    )


def _too_many(workspace: str) -> str:
    return (
        f"{named(workspace)} has more than {MOST_REPOSITORIES} repositories: commands can only "
        "read the others; choose a smaller folder as the workspace"
    )
