"""What to do after a git command that a sandbox let do only a part of its work.

Loaded after the command's end. docs/git.md has the same list with the reasons.
"""

from __future__ import annotations

import os
import stat

from sandboxd_client.cli.denial_lines import allowing
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
_MOST_BYTES = 1 << 26
_READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_FATAL = 128
_AUTHORED = ("commit", "merge", "rebase", "cherry-pick", "revert", "am", "tag", "stash", "pull")
_SIGNS: dict[str, tuple[str, ...]] = {"tag": ("-s", "--sign", "-u", "--local-user")}
_SIGNS |= dict.fromkeys(("commit", "merge", "rebase", "cherry-pick", "revert", "am"),
                        ("-S", "--gpg-sign"))  # fmt: skip
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
    ("remote", (),
     f"the remotes stay as they are: {_OUTSIDE}; git fetch URL BRANCH needs no remote"),
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
    if _unsigned(words, code, denials):
        return _signing(name)
    if name == "rebase" and code and not denials:
        aside = _kept_sequence(workspace)
        return _sequence(name, aside) if aside else None
    if code == _FATAL and name in _AUTHORED and not denials:
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


def _unsigned(words: list[str], code: int, denials: Sequence[dict[str, Any]]) -> bool:
    """Whether a signature was asked for, by a word or by the settings, and its key is hidden."""
    if words[0] not in _SIGNS:
        return False
    asked = any(word.startswith(_SIGNS[words[0]]) for word in words[1:])
    keys = os.path.join(os.path.expanduser("~"), ".ssh", "")
    return (asked and code == _FATAL) or any(
        denial.get("operation") == "sign" or str(denial.get("target")).startswith(keys)
        for denial in denials
    )


def _signing(name: str) -> str:
    without, later = "git commit --no-gpg-sign …", "git commit --amend --no-edit -S"
    if name == "tag":
        without, later = "git -c tag.gpgsign=false tag -a …", "git tag -f -s TAG TAG^{}"
    elif name != "commit":
        without = f"git -c commit.gpgsign=false {name} …"
    return (
        f"signing needs your keys, which no sandbox shows. Without a signature: {without}; then "
        f"sign outside: {later}"
    )


def _read_only(denials: Sequence[dict[str, Any]], workspace: str) -> list[str]:
    """Protected files of the work tree that git could not remove or replace."""
    kept = [
        os.path.relpath(str(denial.get("target")), workspace)
        for denial in denials
        if denial.get("kind") == "protected_path" and denial.get("operation") == "remove"
    ]
    return [path for path in kept if not path.startswith((".git/", ".."))]


def _settings(name: str, rest: list[str]) -> str:
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


def hidden_remote(
    words: list[str], denials: Sequence[dict[str, Any]], workspace: str
) -> str | None:
    """A remote that is a folder which the sandbox does not show, named by the user's own config."""
    if words[0] not in ("push", "fetch", "pull", "ls-remote"):
        return None
    lines = _read(os.path.join(workspace, ".git", "config")).decode(errors="replace").splitlines()
    values = (line.partition("=")[2].strip().strip('"') for line in lines)
    places = {os.path.normpath(os.path.join(workspace, v.removeprefix("file://"))) for v in values}
    for denial in denials:
        target = str(denial.get("target"))
        flag = f"{'--write' if words[0] == 'push' else '--read'} {quoted(target)}"
        if target in places and flag not in allowing(denial.get("remedy")):
            return f"the remote is a folder that the sandbox does not show: add {flag}"
    return None


def missing_identity(workspace: str) -> str | None:
    """No settings that the sandbox shows say who commits."""
    home = os.path.expanduser("~")
    files = (os.path.join(workspace, ".git", "config"), f"{home}/.gitconfig",
             f"{home}/.config/git/config", "/etc/gitconfig")  # fmt: skip
    settings = [_read(path).decode(errors="replace") for path in files]
    if any("email" in text for text in settings):
        return None
    if os.environ.get("EMAIL"):
        return "your address is the variable EMAIL: add --env EMAIL"
    included = [line.partition("=")[2].strip() for text in settings if "[include" in text
                for line in text.splitlines() if line.strip().startswith("path")]  # fmt: skip
    if included:
        named = os.path.expanduser(included[0].strip('"'))
        return f"your git settings include a file that is not shown: add --read {quoted(named)}"
    return (
        "git does not know your name and address: set them outside (git config --global user.name "
        "NAME; git config --global user.email ADDRESS), or give them to one command: "
        "git -c user.name=NAME -c user.email=ADDRESS …"
    )


def half_shown(words: list[str], shown: Sequence[str]) -> str | None:
    """A folder to clone from whose objects lie in other folders: a worktree, a submodule, a clone
    that borrows. `shown`: folders that the sandbox shows."""
    places = [word for word in words[1:] if not word.startswith("-") and os.path.isdir(word)]
    if words[0] not in ("clone", "fetch", "pull", "ls-remote") or not places:
        return None
    missing = [
        path
        for path in _objects_of(os.path.abspath(places[0]))
        if not any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in shown)
    ]
    if not missing:
        return None
    flags = " ".join(f"--read {quoted(path)}" for path in missing)
    return f"git needs more than {places[0]}, and the sandbox does not show it: add {flags}"


def _objects_of(folder: str) -> list[str]:
    """The folders that git reads for the repository in `folder`."""
    pointer = os.path.join(folder, ".git")
    git_dir = pointer if os.path.isdir(pointer) else folder
    if os.path.isfile(pointer):
        target = _read(pointer).decode(errors="replace").removeprefix("gitdir:").strip()
        git_dir = os.path.normpath(os.path.join(folder, target))
    common = _read(os.path.join(git_dir, "commondir")).decode(errors="replace").strip()
    git_dir = os.path.normpath(os.path.join(git_dir, common)) if common else git_dir
    lent = _read(os.path.join(git_dir, "objects", "info", "alternates")).decode(errors="replace")
    objects = os.path.join(git_dir, "objects")
    return [folder, git_dir, *(os.path.normpath(os.path.join(objects, p)) for p in lent.split())]


def ssh_ends(words: list[str], hosts: list[str], workspace: str) -> list[str]:
    """Those of `hosts`, with the port, that this git command reaches by ssh, by its words or its
    remotes."""
    config = _read(os.path.join(workspace, ".git", "config")).decode(errors="replace")
    found = (_ssh_end(place, host) for host in hosts for place in [*words, *config.split()])
    return [end for end in found if end is not None]


def _ssh_end(place: str, host: str) -> str | None:
    if f"@{host}:" in place and "://" not in place:
        return f"{host}:22"
    server = place.removeprefix("ssh://").partition("/")[0].rpartition("@")[2]
    name, _, port = server.partition(":")
    if not place.startswith("ssh://") or name != host:
        return None
    return f"{host}:{port if port.isdecimal() else 22}"


def index_of(path: str) -> bytes | None:
    """Git's index; None: it cannot be read, or its paths are compressed (version 4)."""
    data = _read(path)
    return data if data[:4] == b"DIRC" and data[7:8] in (b"\2", b"\3") else None


def _read(path: str) -> bytes:
    """Empty if it cannot be read. A command can have made it: opening it waits for nothing and
    follows no link."""
    try:
        with open(os.open(path, _READING), "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read(_MOST_BYTES)
    except OSError:
        pass
    return b""


def lists(index: bytes, path: bytes) -> bool:
    """Whether an entry has this path, or one below it: its length, the path, and a zero byte."""
    at = index.find(path)
    while at >= 0:
        length = int.from_bytes(index[at - 2 : at], "big") & 0xFFF
        name, end = index[at : at + length], index[at + length : at + length + 1]
        if end == b"\0" and (name == path or name.startswith(path + b"/")):
            return True
        at = index.find(path, at + 1)
    return False
