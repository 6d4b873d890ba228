"""What to do after a git command that a sandbox let do only a part of its work.

Loaded after the command's end. docs/git.md has the same list with the reasons.
"""

from __future__ import annotations

import os

from sandboxd_client.cli.denial_lines import is_moved_aside
from sandboxd_client.cli.hints.git.branches import branch_hint
from sandboxd_client.cli.hints.git.files import enclosing_bare, git_dirs, index_of, lists
from sandboxd_client.cli.hints.git.upstream import set_upstream
from sandboxd_client.cli.hints.git.user_settings import (
    FATAL,
    missing_identity,
    signing_hint,
    unsigned,
)
from sandboxd_client.cli.plain_text import quote
from sandboxd_proto.locations import KEPT_FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_VALUED = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path")
# They check a commit out, or a part of one.
SWITCHES = ("checkout", "switch", "merge", "pull", "reset", "cherry-pick", "revert", "rebase",
            "bisect", "stash", "am")  # fmt: skip
_RECORDS = ("add", "commit", "stash")
_SEQUENCES = ("rebase-merge", "rebase-apply", "sequencer")
_STOPPED = (*_SEQUENCES, "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")  # of a git dir
_GOES_ON = ("--continue", "--abort", "--skip", "--quit", "--edit-todo", "--show-current-patch")
_SUBMODULES = ("add", "init", "update", "deinit", "sync", "set-url", "set-branch", "absorbgitdirs")
_SUBMODULE_VALUED = ("-b", "--branch", "--name", "--reference", "--depth")  # of `add`
_AUTHORED = ("commit", "merge", "rebase", "cherry-pick", "revert", "am", "tag", "stash", "pull")
_UNTRACKED = ("-u", "--include-untracked", "-a", "--all")  # of git stash
_LISTED = 5  # files that a hint names
OUTSIDE = "run this git command outside of the sandbox"
_UPSTREAM_VALUED = ("-o", "--push-option", "--repo", "--receive-pack", "--exec", "--conflict",
                    "--orphan", "-b", "-B", "-c", "-C")  # fmt: skip
_SETTINGS = ("-u", "--set-upstream-to", "--unset-upstream", "--edit-description")  # of git branch
_NO_UPSTREAM = {
    "push": "the upstream was not set",
    "checkout": "the branch has no upstream",
    "switch": "the branch has no upstream",
}
# Subcommands that write .git/config, and the way round.
_CONFIG = {
    "branch": f"the branch's settings stay as they were, whatever git says: {OUTSIDE}",
    "config": f"{OUTSIDE}, or give the setting to one command: git -c KEY=VALUE …",
}  # fmt: skip


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
    typed: str = "",
    before: Sequence[str] = (),
    errors: bytes | None = None,
    undo: Callable[[Sequence[str]], str | None] = lambda left: None,
) -> str | None:
    """`words`: from the subcommand on; `before`: what stands before it. `typed`: variables of
    --env and the whole command. `errors`: the end of its stderr, if that is known. `undo`: the
    steps that undo what it changed before it failed at these files."""
    name, rest = words[0], words[1:]
    written = [d for d in denials if d.get("kind") != "filesystem_read"]
    targets = [str(denial.get("target")) for denial in written]
    moved = [str(denial.get("target")) for denial in written if is_moved_aside(denial)]
    state = next((path for path in moved if path.rpartition("/")[2] in _SEQUENCES), None)
    if state is not None:
        return _sequence(name, os.path.relpath(state, workspace))
    config = next((one for one in targets if one.endswith(("/.git/config", "/.gitconfig"))), None)
    if config is not None:
        found = branch_hint(rest, code, config, workspace) if name == "branch" else None
        found = _submodule(rest, workspace, moved) if name == "submodule" else found
        return found or _settings(name, rest, before, workspace, config)
    if any("/.git/worktrees/" in target for target in targets):
        return f"what other worktrees need cannot be changed inside: {OUTSIDE}"
    if unsigned(words, code, denials, workspace):
        return signing_hint(name)
    if name == "rebase" and code and not denials and any(word in _GOES_ON for word in rest):
        return _sequence_aside(workspace)
    # In every language git proposes to set user.email.
    nameless = errors is None or b"user.email" in errors
    if code == FATAL and name in _AUTHORED and not denials and nameless:
        return missing_identity(workspace, typed, is_known=errors is not None)
    if name == "submodule" and code and any(word in _SUBMODULES for word in rest):
        return _submodule(rest, workspace, moved)
    left, repositories = _read_only(denials, workspace)
    if left and code and name == "stash" and _saves(rest):
        return _stashed(left, rest, workspace)
    if left and code:
        stopped = is_stopped(workspace)
        return _stopped(left, workspace) if stopped else _not_replaced(left, undo(left))
    if code or name not in SWITCHES:
        return None
    told = [_left_behind(left)] if left else []
    if repositories:
        told.append(
            f"{_listed(repositories)}: git leaves a repository also outside of a sandbox, and "
            "nothing is to be done about it"
        )
    return ". ".join(told) or None


def _read_only(denials: Sequence[dict[str, Any]], workspace: str) -> tuple[list[str], list[str]]:
    """Protected files of the work tree that git could not remove or replace; and repositories,
    which may have the only copy of a commit: no hint says to remove one."""
    kept = [
        os.path.relpath(str(denial.get("target")), workspace)
        for denial in denials
        if denial.get("kind") == "protected_path" and denial.get("operation") == "remove"
    ]
    kept = [path for path in kept if not path.startswith((".git/", ".."))]
    repositories = [path for path in kept if is_repository(os.path.join(workspace, path))]
    return [path for path in kept if path not in repositories], repositories


def is_repository(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, ".git"))


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _submodule(rest: Sequence[str], workspace: str, moved: Sequence[str]) -> str:
    """`submodule add` leaves a folder that git outside takes for no repository."""
    operands = _operands(rest, _SUBMODULE_VALUED)
    path = os.path.basename(operands[-1].rstrip("/")).removesuffix(".git") if operands else ""
    path = operands[-1] if len(operands) > 2 else path
    folder = os.path.join(workspace, path)
    pointer = os.path.join(folder, ".git")
    is_left = os.path.isfile(pointer) and not os.path.exists(git_dirs(folder)[1])
    is_left = is_left or pointer in moved
    first = f"remove what is left ({_removal(quote(path), workspace)}), then " if is_left else ""
    return f"{first}{OUTSIDE}; submodules that are checked out can be used inside"


def _removal(path: str, workspace: str) -> str:
    index = index_of(os.path.join(git_dirs(workspace)[1], "index"))
    staged = index is not None and lists(index, b".gitmodules")
    return (f"git reset -q -- {path} .gitmodules; " if staged else "") + f"rm -rf {path}"


def _operands(rest: Sequence[str], valued: Sequence[str]) -> list[str]:
    """The words that are no options, nor values of these."""
    pairs = zip(["", *rest], rest, strict=False)
    return [word for last, word in pairs if not word.startswith("-") and last not in valued]


def _settings(
    name: str, rest: list[str], before: Sequence[str], workspace: str, config: str
) -> str:
    operands = _operands(rest, _UPSTREAM_VALUED)
    makes = name == "branch" and len(operands) == 2 and not any(w in _SETTINGS for w in rest)
    lacking = _NO_UPSTREAM["switch"] if makes else _NO_UPSTREAM.get(name)
    if lacking is not None:
        return f"{lacking}: outside, {set_upstream(name, operands, workspace, config)}"
    if name == "remote":
        line = " ".join(["git", *map(quote, [*before[1:], "remote", *rest])])
        return (
            f"the remotes stay as they are; outside of the sandbox: {line}. Inside, a URL does in "
            "place of a remote: git fetch URL BRANCH, git push URL BRANCH"
        )
    return _CONFIG.get(name, f"git's settings (.git/config) cannot be changed inside: {OUTSIDE}")


def _sequence(name: str, moved: str) -> str:
    return (
        f"the state of the {name} was moved aside, because its steps can run commands; git knows "
        f"of no {name} now, and HEAD stays where it was. To end it: git checkout BRANCH. To go on: "
        f"look at it (sandboxctl kept diff {moved}), put it back (sandboxctl kept accept {moved}), "
        f"then git {name} --continue or --abort outside"
    )


def _sequence_aside(workspace: str) -> str | None:
    """A rebase is to go on, and git knows of none: the state of one may lie aside."""
    git_dir = git_dirs(workspace)[1]
    if any(os.path.lexists(os.path.join(git_dir, name)) for name in _SEQUENCES):
        return None
    if not os.path.isdir(os.path.join(workspace, KEPT_FOLDER)):
        return None
    from sandboxd_client.cli.kept import entries

    origins = [entry.origin.rstrip("/") for entry in entries(workspace)]
    aside = next((one for one in origins if one.rpartition("/")[2] in _SEQUENCES[:2]), None)
    if aside is None:
        return None
    return (
        "git knows of no rebase now. The state of one that an earlier command left lies aside: if "
        f"that is meant, look at it (sandboxctl kept diff {aside}), put it back (sandboxctl kept "
        f"accept {aside}), and go on with it outside"
    )


def _left_behind(paths: Sequence[str]) -> str:
    stay, it = ("stays, because it is", "it")
    if len(paths) > 1:
        stay, it = ("stay, because they are", "them")
    return (
        f"{_listed(paths)} {stay} read-only inside; git now calls {it} untracked, or changed. "
        f"Remove {it} outside before you switch back, or switch branches outside"
    )


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - _LISTED
    return ", ".join(paths[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _not_replaced(paths: Sequence[str], undo: str | None) -> str:
    why = f"git cannot replace what is read-only inside ({_listed(paths)})"
    if undo is not None:
        return (
            f"{why}, and changed other files before it failed: outside of the sandbox, undo that "
            f"({undo}), then run this git command there"
        )
    return (
        f"{why}: {OUTSIDE}, after a look at git status: it may have changed other files before it "
        "failed"
    )


def is_stopped(workspace: str) -> bool:
    """Whether git waits for --continue or --abort: the command cannot be run once more."""
    git_dir = git_dirs(workspace)[1]
    return any(os.path.lexists(os.path.join(git_dir, name)) for name in _STOPPED)


def _stopped(paths: Sequence[str], workspace: str) -> str:
    return (
        "git stopped on its way (git status); a conflict is resolved as usual. Read-only inside, "
        f"and so not as git wants it: {_listed(paths)}; before --continue or --abort, outside of "
        f"the sandbox: {_by_hand(paths, workspace)}"
    )


def _saves(rest: Sequence[str]) -> bool:
    """Whether `git stash` makes a stash: it does so before it changes files."""
    return not rest or rest[0].startswith("-") or rest[0] in ("push", "save")


def _stashed(paths: Sequence[str], rest: Sequence[str], workspace: str) -> str:
    """To stash once more would make a second one of what is still changed. Where untracked files
    could not be removed, git did not go on to reset the tracked ones, which are in the stash."""
    steps = _by_hand(paths, workspace)
    if _saves_everything(rest):
        steps += "; git reset -q --hard"
    paths = _repositories_of(paths, workspace)
    return (
        f"the stash was saved (git stash list): do not stash again. Read-only inside, and so "
        f"still changed: {_listed(paths)}; outside of the sandbox: {steps}"
    )


def _saves_everything(rest: Sequence[str]) -> bool:
    """Whether the stash has each tracked and untracked change: no pathspec, no selection."""
    words = [word for word in rest if word not in ("push", "-q", "--quiet")]
    return len(words) == 1 and words[0] in _UNTRACKED


def _repositories_of(paths: Sequence[str], workspace: str) -> list[str]:
    """A bare repository in place of files in it."""
    found = (enclosing_bare(path, workspace) or path for path in paths)
    return list(dict.fromkeys(found))


def _by_hand(paths: Sequence[str], workspace: str) -> str:
    """What makes these files what git's index says. `git clean` does not remove what git ignores,
    which no stash and no commit has."""
    index = index_of(os.path.join(git_dirs(workspace)[1], "index"))
    tracked = [p for p in paths if index is None or lists(index, os.fsencode(p))]
    new = [path for path in paths if path not in tracked]
    steps = [f"git checkout -- {' '.join(map(quote, tracked))}"] if tracked else []
    new = _repositories_of(new, workspace)
    folders = [path for path in new if _is_folder(os.path.join(workspace, path))]
    files = [path for path in new if path not in folders]
    steps += [f"rm {' '.join(map(quote, files))}"] if files else []
    steps += [f"git clean -fdq -- {' '.join(map(quote, folders))}"] if folders else []
    return "; ".join(steps)


def taken_for_deleted(words: list[str], workspace: str) -> list[str]:
    """Before a git command that records changes: files that lie aside and that git tracks. Before
    a commit also what it does not track any more: a `git add` may have staged the deletion."""
    if not words or words[0] not in _RECORDS:
        return []
    if not os.path.isdir(os.path.join(workspace, KEPT_FOLDER)):
        return []
    from sandboxd_client.cli.kept import entries

    top, git_dir, _ = git_dirs(workspace)
    if not os.path.lexists(os.path.join(git_dir, "index")):  # git tracks nothing yet
        return []
    index = index_of(os.path.join(git_dir, "index"))
    below = os.path.relpath(workspace, top)
    missing = dict.fromkeys(entry.origin for entry in entries(workspace))
    return [
        origin
        for origin in missing
        if not origin.startswith(".git/")
        and not os.path.lexists(os.path.join(workspace, origin))
        and (
            words[0] == "commit"
            or index is None
            or lists(index, os.fsencode(os.path.normpath(os.path.join(below, origin))))
        )
    ]


def recorded_deletion(missing: Sequence[str]) -> str | None:
    if not missing:
        return None
    return (
        f"git takes for deleted what was moved aside: {_listed(missing)}. Look at git status "
        "and git show --stat before you push. To bring it back, outside: git restore --staged "
        f"--worktree --source BRANCH -- {missing[0]}, or sandboxctl kept accept {missing[0]} and "
        f"git add {missing[0]}"
    )
