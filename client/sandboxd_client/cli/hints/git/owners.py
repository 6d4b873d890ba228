"""Repositories of another user than the one that a command runs as: git refuses them.

Neither --read nor -w helps: the first changes no owner, and the second starts the command in
another repository. A bundle is a file, and git takes it from anybody.
"""

from __future__ import annotations

import os
import re
import sys

from sandboxd_client.cli.hints.git.files import git_dirs
from sandboxd_client.cli.hints.git.remotes import folders_of_remotes, started_in
from sandboxd_client.cli.hints.git.user_settings import texts_of_settings
from sandboxd_client.cli.hints.root import account, closed_folder, user_inside
from sandboxd_client.cli.parse import UsageError
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.workspace import workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd_client.cli.parse import Options

_OVERFLOW_UID = 65534  # of every other user's files inside
_NO_REPOSITORY = re.compile(rb"not a git repository \(|dubious ownership")
_NEEDS_NONE = ("clone", "init", "ls-remote", "version", "help")
_READERS = ("clone", "fetch", "pull", "ls-remote")


def foreign_repository(options: Options, words: list[str], workspace: str) -> str | None:
    """`words`: from the subcommand on, of a git command that failed in `workspace`."""
    unknown = options.has("--sandbox") or options.has("--manifest") or sys.platform == "win32"
    if unknown or words[0] not in (*_READERS, "push"):
        return None
    uid = user_inside(workspace)
    for folder in _folders(options, words):
        owner, closed = _other_owner(folder, uid), closed_folder(folder, uid)
        if closed is None and (owner is None or _is_trusted(options, workspace)):
            continue
        who = account(uid)
        why = f"{quote(folder)} cannot be shown: {quote(closed or '')} does not let {who} through"
        if closed is None:
            why = (
                f"git refuses the repositories of other users: {quote(folder)} belongs to "
                f"{account(owner or 0)}, and git runs as {who} here"
            )
        if owner is None:
            return f"{why}: put it where {who} can reach it"
        return f"{why}. {_by_file(words[0], folder, account(owner))}"
    return None


def repository_above(options: Options, name: str) -> str | None:
    """After git failed in a folder of another owner than the repository around it: the workspace is
    this folder alone, and git refuses the repository, or does not find it. `name`: the subcommand.
    """
    if name in _NEEDS_NONE or not _NO_REPOSITORY.search(
        options.errors or b"not a git repository ("
    ):
        return None
    if options.has("--workspace") or options.has("--sandbox") or options.has("--manifest"):
        return None
    start = started_in(options)
    top, git_dir, _ = git_dirs(start)
    if top == start or git_dir == top or sys.platform == "win32":
        return None
    try:
        workspace(top)
        mine, owner = os.stat(start).st_uid, os.stat(top).st_uid
    except (UsageError, OSError):  # a home folder is no workspace
        return None
    if mine == owner or (os.geteuid() not in (0, owner)):
        return None
    cwd = f" --cwd {quote(top)}" if _is_closed(start, owner) else ""
    return (
        f"{quote(start)} belongs to {account(mine)}, and the repository around it, "
        f"{quote(top)}, to {account(owner)}: add -w {quote(top)}{cwd}"
    )


def _is_closed(folder: str, uid: int) -> bool:
    """Whether this user cannot start in it."""
    if sys.platform == "win32" or os.geteuid() == uid:
        return not os.access(folder, os.X_OK)
    return closed_folder(os.path.join(folder, "x"), uid) is not None


def _by_file(name: str, folder: str, owner: str) -> str:
    """What works as it stands, and trusts nobody."""
    if name == "push":
        return (
            "Hand the commits over as a file: here git bundle create /PATH/FILE HEAD; then "
            f"outside, as {owner}: git -C {quote(folder)} fetch /PATH/FILE HEAD:BRANCH"
        )
    return (
        f"A file does in its place: outside, as {owner}, git -C {quote(folder)} bundle create "
        f"/PATH/FILE --all; then git {name} /PATH/FILE, which lies in the workspace or is shown "
        "with --read"
    )


def _folders(options: Options, words: list[str]) -> list[str]:
    start = started_in(options)
    if words[0] != "clone":
        return folders_of_remotes(words, start)
    named = [os.path.expanduser(word.removeprefix("file://")) for word in words[1:]]
    places = [os.path.normpath(os.path.join(start, word)) for word in named if word[:1] != "-"]
    return [place for place in places if os.path.isdir(place)][:1]


def _other_owner(folder: str, uid: int) -> int | None:
    """Whose the repository is, where git running as `uid` refuses it."""
    top, git_dir, _ = git_dirs(folder)
    if top != folder or (git_dir == folder and not os.path.isdir(os.path.join(folder, "objects"))):
        return None
    try:
        owner = os.stat(git_dir).st_uid
    except OSError:
        return None
    return owner if uid not in (owner, _OVERFLOW_UID) else None


def _is_trusted(options: Options, workspace: str) -> bool:
    """Whether settings say of some folder that it may belong to others: then git may accept it."""
    typed = " ".join((*options.all("--env"), *options.operands))
    return "safe.directory" in typed or any(
        "[safe]" in text for text in texts_of_settings(workspace)
    )
