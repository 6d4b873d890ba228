"""Files in writable folders that would run code outside the sandbox later."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from msgspec.structs import replace

from sandboxd.policy.data.protected_names import GIT_DIR, HOME, NOT_NEW, WORKSPACE
from sandboxd.policy.display_names import named
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.homes import expand
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.plan import (
    GIT_DIR_RULES,
    JUDGED_RULES,
    Access,
    Grant,
    Protected,
    Rule,
)
from sandboxd.policy.protected import (
    closed_ways,
    git_dir,
    git_links,
    git_worktree,
    nested_git,
    scan_limits,
)
from sandboxd.policy.protected.git_dir import ExecPaths, GitDirContext
from sandboxd.policy.protected.protect import (
    LEVELS,
    links_to,
    protect,
    protect_names,
    protect_target,
)
from sandboxd_proto.errors import PathDenied

_MOST_SUBMODULES = 256


def for_workspace(
    workspace: str,
    more: Iterable[str],
    *,
    homes: Iterable[str] = (),
    own_homes: Iterable[str] = (),
    roots: Iterable[str] | None = None,
    writable: Iterable[str] = (),
) -> ExecPaths:
    """The protected paths of a writable workspace, and the implied grants that go with them.

    `more` is `[protect] add`, `homes` are people's home folders, `own_homes` those whose settings
    git follows and that `~` means (otherwise the first of `homes`), `roots` the ceiling's,
    `writable` folders that the caller named, which may contain the workspace. Nothing is created
    for a path that does not exist: it is to be watched while the command runs.
    """
    writable = tuple(writable)
    with scan_limits.for_workspace(workspace), closed_ways.in_folders((workspace, *writable)):
        homes = tuple(homes)
        git_homes = tuple(dict.fromkeys(own_homes)) or homes[:1]
        return _for_workspace(workspace, more, homes, git_homes, roots, writable)


def _for_workspace(
    workspace: str, more: Iterable[str], homes: tuple[str, ...], git_homes: tuple[str, ...],
    roots: Iterable[str] | None, writable: Iterable[str],
) -> ExecPaths:  # fmt: skip
    found = ExecPaths(_kept_of_project(workspace, workspace))
    for name in more:
        found.protected += _named(workspace, name, git_homes)
    writable = tuple(writable)
    found.protected += home_files(homes, (workspace, *writable))
    found.extend(_repository_or_read_only(workspace, git_homes, roots))
    shared = tuple(p.path for p in found.protected if p.rule == "shared_git_dir")
    found.nested = nested_git.find(workspace).with_settings(shared, git_homes)
    inner = [path for path in found.nested.paths if path != workspace]
    found.extend(_nested(workspace, inner, git_homes))
    found.protected += _other_projects(workspace, found.nested, {workspace, *inner})
    around = list(_repositories_around(workspace))
    for folder, leads_to in around:
        context = GitDirContext(workspace, workspace, folder, git_homes)
        found.protected += git_dir.configured_paths(leads_to, context)
    links = git_links.find(workspace, [*_trees(workspace, inner), *around])
    found.extend(_named_by_index(workspace, links, git_homes, _git_dirs(found)))
    found.nested = found.nested.with_warnings(links.warnings)
    left = nested_git.MOST_FOLDERS
    for folder in writable:
        found.extend(_above(workspace, folder, git_homes))
        left -= _add_granted(found, workspace, folder, git_homes, left)
    for folder in (*found.nested.closed, *found.nested.read_only):
        root = next(iter(found.nested.by_root([folder])))
        found.protected += protect(folder, root) if folder != root else []
    found.nested = found.nested.with_warnings(found.warnings)
    found.protected = _strictest(found.protected)
    found.grants = sorted(set(found.grants))
    return found


def home_files(homes: Iterable[str], writable: Iterable[str]) -> list[Protected]:
    """Start-up files and the like of people whose homes lie in writable folders, or contain
    them."""
    return [
        protected
        for root in writable
        for home in homes
        if within(home, root) or within(root, home)
        for name in HOME
        if is_below(f"{home}/{name}", root)
        for protected in protect(f"{home}/{name}", root)
    ]


def linked_grants(
    workspace: str, access: Access, roots: Iterable[str] | None
) -> tuple[list[Grant], git_worktree.LinkedGit | None]:
    """The git dir elsewhere of a worktree or submodule, where it agrees and the ceiling permits."""
    link = git_worktree.find_linked_git(workspace)
    if link is None:
        return [], None
    needed = {link.git_dir, link.common}
    if roots is not None and not all(any(within(n, r) for r in roots) for n in needed):
        return [], None
    return [g for path in sorted(needed) for g in git_dir.grant(path, access)], link


def _named(workspace: str, name: str, homes: tuple[str, ...]) -> list[Protected]:
    paths = [posixpath.normpath(posixpath.join(workspace, one)) for one in expand(name, homes)]
    inner = [path for path in paths if is_below(path, workspace)]
    return [found for path in inner for found in protect_target(path, workspace, LEVELS)]


def _repository_or_read_only(
    workspace: str, git_homes: tuple[str, ...], roots: Iterable[str] | None
) -> ExecPaths:
    try:
        with scan_limits.for_repository(workspace, nested=False):
            return _repository(workspace, git_homes, roots)
    except scan_limits.TooMuch as error:
        return _read_only(workspace, workspace, error)


def _read_only(folder: str, root: str, error: scan_limits.Unprotectable) -> ExecPaths:
    """Nothing in a repository changes that cannot be protected in another way.

    Of a writable folder itself the git dir only. Its most important names are kept by themselves,
    too: a caller who names the folder can write there.
    """
    leads_to = git_links.git_dir_of(folder) or folder
    whole = folder if folder != root else posixpath.join(folder, ".git")
    found = ExecPaths(protect(whole, root))
    with suppress(scan_limits.TooMuch):
        if within(leads_to, root) and git_dir.is_readable(leads_to):
            found.protected += protect_names(leads_to, GIT_DIR, root)
    if folder == root and not git_dir.is_git_dir(folder):
        found.protected.append(_no_git_dir(folder, root))
    found.warnings.append(f"commands can only read {named(whole)}: {error}")
    return found


def _repository(
    workspace: str, git_homes: tuple[str, ...], roots: Iterable[str] | None
) -> ExecPaths:
    """The repository that git finds from the workspace's top folder, or would find there."""
    found = ExecPaths()
    pointer = posixpath.join(workspace, ".git")
    if recording_fs.isdir(pointer):
        real = recording_fs.realpath(pointer)
        found.protected += links_to(pointer, workspace)
        if within(real, workspace):
            found.extend(
                git_dir.exec_paths(real, GitDirContext(workspace, workspace, workspace, git_homes))
            )
    elif recording_fs.lexists(pointer):
        found.extend(_pointed(workspace, workspace, git_homes))
        found.extend(_linked(workspace, git_homes, roots))
    else:
        found.protected += _new_repository(workspace, workspace, git_homes)
    found.extend(_top(workspace, workspace, git_homes))
    found.extend(_submodules(workspace, git_homes, _git_dirs(found)))
    return found


def _kept_of_project(folder: str, root: str) -> list[Protected]:
    """In the top folder of a project."""
    missing = [n for n in NOT_NEW if not recording_fs.isdir(posixpath.join(folder, n))]
    return protect_names(folder, (*WORKSPACE, *missing), root, LEVELS)


def _other_projects(
    root: str, found: nested_git.Repositories, known: Collection[str]
) -> list[Protected]:
    """Repositories of other version control are top folders of projects, too."""
    folders = sorted({*map(posixpath.dirname, found.others)}.difference(known))
    protected: list[Protected] = []
    for folder in folders:
        try:
            with scan_limits.for_repository(folder, nested=True):
                protected += _kept_of_project(folder, root)
        except scan_limits.TooMuch:
            protected += protect(folder, root)
    return protected


def _top(folder: str, root: str, git_homes: tuple[str, ...]) -> ExecPaths:
    """Git takes a folder without a valid `.git` for a git dir if it looks like one."""
    if git_dir.is_git_dir(folder):
        return git_dir.exec_paths(
            folder, GitDirContext(root, root, None, git_homes, rule="bare_git_dir")
        )
    return ExecPaths([_no_git_dir(folder, root)])


def _no_git_dir(folder: str, root: str) -> Protected:
    return Protected(folder, root, present=False, is_dir=True, rule="top")


def _nested(workspace: str, folders: Iterable[str], git_homes: tuple[str, ...]) -> ExecPaths:
    """Repositories in folders of the workspace are as good as the one at its top."""
    found = ExecPaths()
    for folder in folders:
        try:
            with scan_limits.for_repository(folder, nested=True):
                one = ExecPaths(_kept_of_project(folder, workspace))
                one.extend(_pointed(workspace, folder, git_homes))
                one.extend(_top(folder, workspace, git_homes))
        except scan_limits.Unprotectable as error:
            one = _read_only(folder, workspace, error)
        found.extend(one)
    return found


def _trees(workspace: str, folders: list[str]) -> Iterator[tuple[str, str]]:
    """Folders with a repository's files, each with its git dir if the two point at each other."""
    link = git_worktree.find_linked_git(workspace)
    if link is not None:
        yield workspace, link.git_dir
    for folder in (workspace, *folders):
        leads_to = git_links.git_dir_of(folder)
        if leads_to is not None and within(leads_to, workspace):
            yield folder, leads_to


def _repositories_around(workspace: str) -> Iterator[tuple[str, str]]:
    """Folders above the workspace that are repositories, each with its git dir.

    Nothing of them is writable, but their settings and links may lead into the workspace.
    """
    folder = workspace
    while folder != "/":
        folder = posixpath.dirname(folder)
        leads_to = git_links.git_dir_of(folder)
        if leads_to is not None:
            yield folder, leads_to


def _named_by_index(
    workspace: str, links: git_links.GitLinks, git_homes: tuple[str, ...], known: frozenset[str]
) -> ExecPaths:
    """Where the search for nested repositories does not come, git does."""
    found = ExecPaths()
    for folder in links.empty:
        found.protected += _new_repository(folder, workspace, git_homes)
    for folder in links.folders:
        try:
            with scan_limits.for_repository(folder, nested=True):
                found.extend(_pointed(workspace, folder, git_homes, known))
        except scan_limits.Unprotectable as error:
            found.extend(_read_only(folder, workspace, error))
    return found


def _pointed(
    workspace: str, folder: str, git_homes: tuple[str, ...], known: frozenset[str] = frozenset()
) -> ExecPaths:
    """The `.git` of a folder, and the git dir that it leads to if that is in the workspace. If that
    is none, it does not become one that runs programs.

    `known`: git dirs that are protected already.
    """
    found = ExecPaths()
    pointer = posixpath.join(folder, ".git")
    said = git_links.said_git_dir(folder)
    if said is None:
        return found
    leads_to = recording_fs.realpath(said)
    # An empty file keeps git out of a cache; a pipe or a loop of links is no git dir either.
    is_other = recording_fs.lexists(leads_to) and not recording_fs.isdir(leads_to)
    if leads_to != pointer or is_other:
        found.protected += protect(pointer, workspace)
        found.protected += (protect_target if is_other else links_to)(said, workspace)
    if is_other or leads_to in known or not is_below(leads_to, workspace):
        return found
    if leads_to == pointer or git_dir.looks_like_git_dir(leads_to):
        around = GitDirContext(workspace, workspace, folder, git_homes)
        found.extend(git_dir.exec_paths(leads_to, around))
    elif recording_fs.isdir(leads_to):
        has_head = recording_fs.lexists(posixpath.join(leads_to, "HEAD"))
        lacking = ("objects", "commondir") if has_head else ("HEAD",)
        found.protected += protect_names(leads_to, lacking, workspace)
    else:
        found.protected += _may_become(leads_to, folder, workspace, git_homes)
    return found


def _above(workspace: str, root: str, git_homes: tuple[str, ...]) -> ExecPaths:
    """Git looks for a repository in the folders above too: those between the workspace and `root`.

    None of them may become one, nor stop being one.
    """
    found = ExecPaths()
    folder = posixpath.dirname(workspace)
    while within(folder, root) and folder != "/":
        found.extend(_nested(root, [folder], git_homes))
        found.protected += _new_repository(folder, root, git_homes)
        folder = posixpath.dirname(folder)
    return found


def _new_repository(folder: str, root: str, git_homes: tuple[str, ...]) -> list[Protected]:
    """A `.git` that comes into being must not be harmful."""
    pointer = posixpath.join(folder, ".git")
    return [] if recording_fs.lexists(pointer) else _may_become(pointer, folder, root, git_homes)


def _may_become(path: str, folder: str, root: str, git_homes: tuple[str, ...]) -> list[Protected]:
    """A git dir at `path`, and what the user's own settings make git run in any repository."""
    found = git_dir.configured_paths_elsewhere(path, GitDirContext(root, root, folder, git_homes))
    return [Protected(path, root, present=False, rule="new_repository"), *found]


def _add_granted(
    found: ExecPaths, workspace: str, folder: str, git_homes: tuple[str, ...], most: int
) -> int:
    """Repositories in another writable folder are as good as those in the workspace.

    The folder itself may become one under the same rules. Returns how many folders were searched.
    """
    searched = None if workspace in found.nested.read_only else workspace
    if (searched and within(folder, searched)) or not recording_fs.isdir(folder):
        return 0
    inside = nested_git.find(folder, most)
    if folder in inside.read_only:
        raise PathDenied(
            f"{named(folder)} has more folders with repositories than can be protected",
            field="fs_write_allow",
            remedy="name the folders of the projects in it that are to be written",
        )
    outside = [path for path in inside.paths if not (searched and within(path, searched))]
    found.extend(_nested(folder, outside, git_homes))
    found.protected += _other_projects(folder, inside, {*outside, *found.nested.folders})
    if folder not in outside:
        found.protected += _new_repository(folder, folder, git_homes)
        found.extend(_top(folder, folder, git_homes))
    found.nested = found.nested.joined(inside)
    return len(inside.folders)


def _linked(workspace: str, git_homes: tuple[str, ...], roots: Iterable[str] | None) -> ExecPaths:
    grants, link = linked_grants(workspace, "write", roots)
    found = ExecPaths(grants=grants)
    if link is None:
        return found
    if link.git_dir != link.common:
        found.protected += git_dir.worktree_state(link.git_dir)
        own = GitDirContext(link.git_dir, workspace, workspace, git_homes)
        found.protected += git_dir.configured_paths(link.git_dir, own)
    main = link.git_dir != link.common
    rule: Rule = "shared_git_dir" if main else "git_dir"
    shared = GitDirContext(link.common, workspace, workspace, git_homes, rule)
    found.extend(git_dir.exec_paths(link.common, shared))
    return found


def _submodules(workspace: str, git_homes: tuple[str, ...], known: frozenset[str]) -> ExecPaths:
    """git status enters every submodule: a repository put in its place would run code."""
    found = ExecPaths()
    entries = git_dir.read_config(posixpath.join(workspace, ".gitmodules"))
    paths = [v for k, v in entries if k.startswith("submodule.") and k.endswith(".path")]
    for path in paths[:_MOST_SUBMODULES]:
        folder = posixpath.normpath(posixpath.join(workspace, path))
        if not is_below(folder, workspace):
            continue
        if git_links.git_dir_of(folder) is None:
            found.protected += protect_target(posixpath.join(folder, ".git"), workspace)
        found.extend(_pointed(workspace, folder, git_homes, known))
    return found


def _git_dirs(found: ExecPaths) -> frozenset[str]:
    return frozenset(p.path for p in found.protected if p.rule in GIT_DIR_RULES)


def _strictest(protected: Iterable[Protected]) -> list[Protected]:
    """Each path once; what is watched for being absent is not also judged more mildly.

    A folder whose entries are watched is another matter than the folder's own name.
    """
    chosen: dict[tuple[str, str], Protected] = {}
    for one in protected:
        key = one.path, one.rule if one.rule in JUDGED_RULES else ""
        known = chosen.get(key)
        if known is None or (known.rule != "absent" and one.rule == "absent"):
            chosen[key] = one
        elif len(one.root) > len(known.root):
            chosen[key] = replace(known, root=one.root)
    return list(chosen.values())
