"""What to do after a git command that a sandbox let do only a part of its work.

Loaded after the command's end. docs/git.md has the same list with the reasons.
"""

from __future__ import annotations

import os

from sandboxd_client.cli.git_files import index_of, lists
from sandboxd_client.cli.git_places import hidden_remote
from sandboxd_client.cli.git_user import FATAL, missing_identity, signing_hint, unsigned
from sandboxd_client.cli.plain_text import quoted
from sandboxd_proto.locations import KEPT_FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_VALUED = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path")
SWITCHES = ("checkout", "switch", "merge", "pull", "reset", "cherry-pick")
_RECORDS = ("add", "commit", "stash")
_SEQUENCES = ("rebase-merge", "rebase-apply", "sequencer")
_AUTHORED = ("commit", "merge", "rebase", "cherry-pick", "revert", "am", "tag", "stash", "pull")
_OUTSIDE = "run this git command outside of the sandbox"
# Subcommand, one of its words (empty: any), and the way round. The first that matches counts.
_CONFIG: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("branch", ("-d", "-D", "--delete"),
     "the branch is deleted; only its section in .git/config stays, which does no harm"),
    ("branch", ("-m", "-M", "--move"),
     "the branch is renamed, but not its settings: set its upstream outside, with "
     "git branch --set-upstream-to"),
    ("branch", ("-c", "-C", "--copy"), "the branch is copied, but not its settings"),
    ("branch", (), f"the upstream was not set, whatever git says: {_OUTSIDE}"),
    ("push", (), "the upstream was not set: outside, git branch --set-upstream-to"),
    ("checkout", (), "the branch has no upstream: outside, git branch --set-upstream-to"),
    ("switch", (), "the branch has no upstream: outside, git branch --set-upstream-to"),
    ("config", (), f"{_OUTSIDE}, or give the setting to one command: git -c KEY=VALUE …"),
    ("submodule", (), f"{_OUTSIDE}; submodules that are checked out can be used inside"),
)  # fmt: skip


def words_after_git(argv: Sequence[str]) -> list[str]:
    """The subcommand and its words; nothing if `argv` is no git command."""
    if not argv or argv[0].rpartition("/")[2] != "git":
        return []
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        index += 2 if argv[index] in _VALUED else 1
    return list(argv[index:])


def git_hint(
    words: list[str],
    code: int,
    denials: Sequence[dict[str, Any]],
    workspace: str,
) -> str | None:
    """`words`: from the subcommand on."""
    name, rest = words[0], words[1:]
    targets = [str(denial.get("target")) for denial in denials]
    if name == "worktree" and rest[:1] == ["add"]:
        return _worktree(rest[1:], code)
    moved = next((t for t in targets if t.rpartition("/")[2] in _SEQUENCES), None)
    if moved is not None:
        return _sequence(name, os.path.relpath(moved, workspace))
    if any(target.endswith(("/.git/config", "/.gitconfig")) for target in targets):
        return _settings(name, rest)
    if any("/.git/worktrees/" in target for target in targets):
        return f"what other worktrees need cannot be changed inside: {_OUTSIDE}"
    if unsigned(words, code, denials):
        return signing_hint(name)
    if name == "rebase" and code and not denials:
        aside = _kept_sequence(workspace)
        return _sequence(name, aside) if aside else None
    if code == FATAL and name in _AUTHORED and not denials:
        return missing_identity(workspace)
    remote = hidden_remote(words, denials, workspace) if code else None
    if remote is not None:
        return remote
    if name == "submodule" and code:
        return f"{_OUTSIDE}; submodules that are checked out can be used inside"
    left = _read_only(denials, workspace)
    if left and code:
        return _not_replaced(left)
    return _left_behind(left[0]) if left and name in SWITCHES else None


def _read_only(denials: Sequence[dict[str, Any]], workspace: str) -> list[str]:
    """Protected files of the work tree that git could not remove or replace."""
    kept = [
        os.path.relpath(str(denial.get("target")), workspace)
        for denial in denials
        if denial.get("kind") == "protected_path" and denial.get("operation") == "remove"
    ]
    return [path for path in kept if not path.startswith((".git/", ".."))]


def _settings(name: str, rest: list[str]) -> str:
    if name == "remote":
        line = " ".join(["git", "remote", *map(quoted, rest)])
        return (
            f"the remotes stay as they are; outside of the sandbox: {line}. Inside, a URL does in "
            "place of a remote: git fetch URL BRANCH, git push URL BRANCH"
        )
    for subcommand, one_of, text in _CONFIG:
        if name == subcommand and (not one_of or any(word in one_of for word in rest)):
            return text
    return f"git's settings (.git/config) cannot be changed inside: {_OUTSIDE}"


def _worktree(rest: list[str], code: int) -> str | None:
    """A worktree outside the workspace is not made, or made in a folder that ends with the run."""
    place = _place_of_worktree(rest)
    if place is None or (code == 0 and os.path.lexists(place)):
        return None
    branch = os.path.basename(os.path.normpath(place))
    return (
        f"{place} was not made. A worktree is made outside of the sandbox; then run "
        "commands in it with --workspace. To remove what this left: git worktree prune, and "
        f"git branch -d {branch} if that branch is new"
    )


def _place_of_worktree(rest: list[str]) -> str | None:
    index = 0
    while index < len(rest) and rest[index].startswith("-") and rest[index] != "--":
        index += 2 if rest[index] in ("-b", "-B", "--reason") else 1
    words = [word for word in rest[index:] if word != "--"]
    return words[0] if words else None


def _sequence(name: str, moved: str) -> str:
    return (
        f"the state of the {name} was moved aside, because its steps can run commands; git knows "
        f"of no {name} now, and HEAD stays where it was. To end it: git checkout BRANCH. To go on: "
        f"look at it (sandboxctl kept diff {moved}), put it back (sandboxctl kept accept {moved}), "
        f"then git {name} --continue or --abort outside"
    )


def _kept_sequence(workspace: str) -> str | None:
    """The state of a rebase that an earlier command left and that was moved aside."""
    if not os.path.isdir(os.path.join(workspace, KEPT_FOLDER)):
        return None
    from sandboxd_client.cli.kept import entries

    origins = [entry.origin for entry in entries(workspace)]
    return next((one for one in origins if one.rpartition("/")[2] in _SEQUENCES), None)


def _left_behind(path: str) -> str:
    return (
        f"{path} stays, because it is read-only inside; git now calls it untracked, or changed. "
        "Remove it outside before you switch back, or switch branches outside"
    )


def _not_replaced(paths: Sequence[str]) -> str:
    return (
        f"git cannot replace what is read-only inside ({', '.join(paths[:3])}): {_OUTSIDE}, after "
        "a look at git status: it may have changed other files before it failed"
    )


def taken_for_deleted(words: list[str], workspace: str) -> list[str]:
    """Before a git command that records changes: files that lie aside and that git tracks."""
    if not words or words[0] not in _RECORDS:
        return []
    if not os.path.isdir(os.path.join(workspace, KEPT_FOLDER)):
        return []
    from sandboxd_client.cli.kept import entries

    index = index_of(os.path.join(workspace, ".git", "index"))
    missing = dict.fromkeys(entry.origin for entry in entries(workspace))
    return [
        origin
        for origin in missing
        if not origin.startswith(".git/")
        and not os.path.lexists(os.path.join(workspace, origin))
        and (index is None or lists(index, os.fsencode(origin.rstrip("/"))))
    ]


def recorded_deletion(missing: Sequence[str]) -> str | None:
    if not missing:
        return None
    return (
        f"git takes for deleted what was moved aside: {', '.join(missing[:3])}. Look at git status "
        "and git show --stat before you push. To bring it back, outside: git restore --source "
        f"BRANCH -- {missing[0]}, or sandboxctl kept accept {missing[0]}"
    )
