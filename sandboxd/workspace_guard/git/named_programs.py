"""Programs among the files of a repository that a command made, which settings make git run there:
a `core.hooksPath` of the user's that names a folder of the work tree counts for every repository.
"""

from __future__ import annotations

from sandboxd.policy.paths.within import is_below
from sandboxd.policy.protected import git_dir, git_links, scan_limits
from sandboxd.policy.protected.git_dir import GitDirContext


def has_named_programs(folder: str, root: str, git_homes: tuple[str, ...]) -> bool:
    """Whether the settings of the repository that git finds in this folder, or those of the user,
    name one in it. `root`: the writable folder that it lies in."""
    leads_to = git_links.git_dir_of(folder)
    if leads_to is None and not git_dir.is_git_dir(folder):
        return False
    around = GitDirContext(root, root, folder, git_homes)
    try:
        with scan_limits.for_repository(folder, nested=True):
            found = git_dir.configured_paths_elsewhere(leads_to or folder, around)
    except scan_limits.Unprotectable:
        return True
    return any(one.present and is_below(one.path, folder) for one in found)
