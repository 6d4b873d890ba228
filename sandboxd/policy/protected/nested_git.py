"""Git repositories in folders of a workspace: found by a bounded look, near the top first.

Each of the near folders is noted with the names of its subfolders only, so that a plan stays valid
while files come and go. The others are searched once in a while (`distant_git`).
"""

from __future__ import annotations

import posixpath
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from sandboxd.platform.current import files
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.protected import distant_git
from sandboxd.policy.shown_names import named

MARKS = (".git", "HEAD", "objects", "refs")  # what makes a folder a repository
MOST_FOLDERS = 256  # near ones
DEEPEST = 5
MOST_REPOSITORIES = 32
# Of this thread's CPU time, so that a busy machine does not change what is found; and of any.
MOST_CPU_S = 0.25
MOST_S = 5.0
# Where package managers put what they fetched: too many folders, and no place to run git in.
_SKIPPED = frozenset(("node_modules", "__pycache__", "site-packages", ".git", ".venv", "venv"))


@dataclass(frozen=True, slots=True)
class Repositories:
    """`folders` are the near ones; `paths`, near and distant, have a `.git`, or are bare
    repositories.

    `main_checkouts`: git dirs that a worktree in the workspace shares with another checkout.
    """

    paths: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    main_checkouts: tuple[str, ...] = ()


def is_step(name: str, is_dir: bool) -> bool:
    """For listings: a folder to look into, or what makes its folder a repository."""
    return (is_dir and name not in _SKIPPED) or name.lower() in (".git", "head")


def find(workspace: str, most: int | None = None) -> Repositories:
    """The repositories in `workspace`, itself among them; `most`: of the near folders."""
    most = MOST_FOLDERS if most is None else most
    repositories: list[str] = []
    folders: list[str] = []
    distant: list[str] = []
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
        except OSError:
            continue
        folders.append(folder)
        names = _names(folder, entries)
        if is_repository(names):
            repositories.append(folder)
            if ".git" not in names and folder != workspace:
                continue  # a bare repository's own folders
        inner = sorted(
            e.path for e in entries if e.name.lower() != ".git" and e.is_dir(follow_symlinks=False)
        )
        pending += [(path, depth + 1) for path in inner]
    warnings: list[str] = []
    if distant:
        further = distant_git.search(workspace, distant, is_step)
        repositories += filter(_is_still_one, further.candidates)
        if not further.complete:
            warnings.append(_incomplete(workspace, len(folders) + further.searched))
    if len(repositories) > MOST_REPOSITORIES:
        warnings.append(_too_many(workspace))
    found = tuple(repositories[:MOST_REPOSITORIES])
    return Repositories(found, tuple(folders), tuple(warnings))


def _is_still_one(folder: str) -> bool:
    try:
        return is_repository(_names(folder, recording_fs.select(folder, is_step)))
    except OSError:
        return False


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


def is_repository(names: set[str]) -> bool:
    return ".git" in names or {"HEAD", "objects", "refs"} <= names


def _incomplete(workspace: str, count: int) -> str:
    return (
        f"not every folder of {named(workspace)} was searched for git repositories (the first "
        f"{count} were): hooks and settings of repositories further down are not protected; "
        "if there are any, choose a smaller folder as the workspace"
    )


def _too_many(workspace: str) -> str:
    return (
        f"{named(workspace)} has more than {MOST_REPOSITORIES} git repositories: hooks and "
        "settings of the others are not protected; choose a smaller folder as the workspace"
    )
