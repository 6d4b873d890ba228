"""Which names in a git dir belong to git's daily work. Everything else in it stays as it is.

Found by watching real git operations: commit, merge, rebase, cherry-pick, revert, stash, bisect,
tag, notes, fetch, am, gc, repack, split index, sparse index, worktree, submodule work.
"""

from __future__ import annotations

import re

_NAMES = frozenset(
    (
        "objects", "refs", "logs", "packed-refs", "packed-refs.new", "index", "HEAD", "ORIG_HEAD",
        "FETCH_HEAD", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "SQUASH_MSG",
        "COMMIT_EDITMSG", "TAG_EDITMSG", "NOTES_EDITMSG", "EDIT_DESCRIPTION", "ADD_EDIT.patch",
        "addp-hunk-edit.diff", "rebase-merge", "rebase-apply", "sequencer", "gc.pid", "gc.log",
        "shallow", "rr-cache", "NOTES_MERGE_WORKTREE", "lfs", "reftable",
    )
)  # fmt: skip
# What git opens an editor on.
_EDITED = frozenset(
    (
        "COMMIT_EDITMSG", "TAG_EDITMSG", "NOTES_EDITMSG", "MERGE_MSG", "SQUASH_MSG",
        "EDIT_DESCRIPTION", "ADD_EDIT.patch", "addp-hunk-edit.diff",
    )
)  # fmt: skip
# Editors keep beside it: a backup, swap files, an undo file, an autosave file.
_BESIDE = re.compile(r"\.(.+)\.(?:sw[a-px]|swpx|un~)|(.+)~|#(.+)#")
_PATTERNS = re.compile(
    r"(MERGE|BISECT|NOTES_MERGE)_[A-Z_]+|sharedindex[._][0-9A-Za-z]+|index\.stash\.\d+"
    r"|next-index-\d+|shallow_[0-9A-Za-z]+"
    r"|4913"  # vim tries whether it may make a file
)
# Files of an unfinished operation whose content git acts upon.
STATE_FILES = (
    "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "ORIG_HEAD", "AUTO_MERGE",
    "BISECT_HEAD", "BISECT_EXPECTED_REV", "MERGE_AUTOSTASH", "MERGE_RR", "BISECT_START",
    "BISECT_TERMS", "BISECT_NAMES", "NOTES_MERGE_REF", "NOTES_MERGE_PARTIAL",
)  # fmt: skip
# Without them git looks for another repository.
NEEDED_FOLDERS = ("objects", "refs")
# Git asks the repositories that these name for their refs, under settings of their own.
ALTERNATES = ("objects/info/alternates", "objects/info/http-alternates")
# Judged by rules of their own: see git_dir.py.
SEPARATE = frozenset(("modules", "worktrees", "info"))
# Git looks here for what it runs: once they are there, the next git command may run code.
RUNS_AT_ONCE = frozenset(("hooks", "config", "config.worktree", "commondir"))
# Old forms of `[remote]`: `git fetch` and `git push` take addresses from them.
OLD_REMOTES = ("branches", "remotes")
# The temporary file of `sed -i`.
_OF_SED = re.compile(r"sed[0-9A-Za-z]{6}")
# `git update-server-info`, which gc and repack call, writes these in `info`.
_INFO = re.compile(r"refs(_[0-9A-Za-z]{6})?")


def is_work(name: str) -> bool:
    """Whether git makes, changes and removes `name` in a git dir in the course of daily work."""
    name = name.removesuffix(".lock")
    if name in _NAMES or _PATTERNS.fullmatch(name) is not None:
        return True
    return edited_beside(name) in _EDITED


def edited_beside(name: str) -> str | None:
    """The file that an editor keeps `name` for."""
    found = _BESIDE.fullmatch(name)
    return next(filter(None, found.groups()), None) if found is not None else None


def is_transient(name: str) -> bool:
    """What git (`git config`) and sed make before they try to change what they may not. Git reads
    neither."""
    return name.endswith(".lock") or _OF_SED.fullmatch(name) is not None


def is_info_work(name: str) -> bool:
    return _INFO.fullmatch(name) is not None


def is_kept(name: str, is_dir: bool) -> bool:
    """For listings of a git dir: what is there and must stay as it is."""
    return not is_work(name) and name not in SEPARATE and not name.endswith(".lock")


def is_kept_info(name: str, is_dir: bool) -> bool:
    return not is_info_work(name)
