"""What the user's own git settings ask for, and a sandbox does not have: name, keys, hooks."""

from __future__ import annotations

import os

from sandboxd_client.cli.hints.git.files import read
from sandboxd_client.cli.hints.git.sources import HIDDEN, lies_below
from sandboxd_client.cli.hints.root import account, given_up_for, has_home, home_inside, user_inside
from sandboxd_client.cli.plain_text import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FATAL = 128
_KEY_AND_VALUE = 2
_ONE_COMMAND = "give them to one command: git -c user.name=NAME -c user.email=ADDRESS …"
_SIGNS: dict[str, tuple[str, ...]] = {"tag": ("-s", "--sign", "-u", "--local-user")}
_SIGNS |= dict.fromkeys(("commit", "merge", "rebase", "cherry-pick", "revert", "am"),
                        ("-S", "--gpg-sign"))  # fmt: skip
_COMMITS = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit")
_MERGES = ("pre-merge-commit", "post-merge", "commit-msg")
_HOOKS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("commit", "cherry-pick", "revert"), _COMMITS),
    **dict.fromkeys(("merge", "pull"), _MERGES),
    **dict.fromkeys(("checkout", "switch"), ("post-checkout",)),
    "push": ("pre-push",),
    "rebase": ("pre-rebase", "post-rewrite"),
    "am": ("applypatch-msg", "pre-applypatch", "post-applypatch"),
}


def missing_identity(workspace: str, typed: str = "", *, is_known: bool = False) -> str | None:
    """No settings that the sandbox shows say who commits. `typed`: what was said to sandboxctl.
    `is_known`: git said that it does not know it."""
    settings = texts_of_settings(workspace)
    if "email" in typed.lower():
        return None
    if any("email" in text for text in settings):
        return _unseen_home(workspace) if is_known else None
    if all(os.environ.get(f"GIT_{who}_EMAIL") for who in ("AUTHOR", "COMMITTER")):
        return None
    if os.environ.get("EMAIL"):
        return "your address is the variable EMAIL: add --env EMAIL"
    included = [line.partition("=")[2].strip() for text in settings if "[include" in text
                for line in text.splitlines() if line.strip().startswith("path")]  # fmt: skip
    if included:
        named = _expanded(included[0].strip('"'), home_inside(workspace))
        return f"your git settings include a file that is not shown: add --read {quote(named)}"
    other = given_up_for(workspace)
    if other is not None:
        return (
            f"git runs as the owner of the workspace here ({account(other)}), and does not see "
            f"root's name and address: {_ONE_COMMAND}; for all commands set GIT_AUTHOR_NAME, "
            "GIT_AUTHOR_EMAIL, GIT_COMMITTER_NAME and GIT_COMMITTER_EMAIL, which sandboxctl passes "
            "on" + (", or let the owner run git config --global" if has_home(workspace) else "")
        )
    return (
        "git does not know your name and address: set them outside (git config --global user.name "
        f"NAME; git config --global user.email ADDRESS), or {_ONE_COMMAND}"
    )


def _unseen_home(workspace: str) -> str:
    home = quote(home_inside(workspace))
    return (
        f"the sandbox does not show the settings in {home}: the daemon was started with another "
        f"HOME (sandboxctl restart starts it with this one), or {_ONE_COMMAND}"
    )


def lost_settings(words: list[str], workspace: str) -> str | None:
    """After `git config --global KEY VALUE` of a user without a home folder."""
    reads = any(word.startswith(("--get", "--list", "-l")) for word in words)
    reads = reads or len([word for word in words[1:] if word[:1] != "-"]) < _KEY_AND_VALUE
    if words[0] != "config" or "--global" not in words or reads or has_home(workspace):
        return None
    return (
        f"{account(user_inside(workspace))} has no home folder: $HOME is the private /tmp, and the "
        "setting ends with the sandbox. Give it to one command: git -c KEY=VALUE …"
    )


def outside_as(workspace: str) -> str:
    """For root: whose repository it is. Outside, git refuses to use it as another user."""
    other = given_up_for(workspace)
    return (
        "" if other is None else f" (outside, do that as {account(other)}: git refuses root here)"
    )


def unsigned(
    words: list[str], code: int, denials: Sequence[dict[str, Any]], workspace: str
) -> bool:
    """Whether a signature was asked for, by a word or by the settings, and its key is hidden."""
    if words[0] not in _SIGNS:
        return False
    asked = any(word.startswith(_SIGNS[words[0]]) for word in words[1:])
    keys = os.path.join(home_inside(workspace), ".ssh", "")
    return (asked and code == FATAL) or any(
        denial.get("operation") == "sign" or str(denial.get("target")).startswith(keys)
        for denial in denials
    )


def signing_hint(name: str) -> str:
    without, later = "git commit --no-gpg-sign …", "git commit --amend --no-edit -S"
    if name == "tag":
        without, later = "git -c tag.gpgsign=false tag -a …", "git tag -f -s TAG TAG^{}"
    elif name != "commit":
        without = f"git -c commit.gpgsign=false {name} …"
    return (
        f"signing needs your keys, which no sandbox shows. Without a signature: {without}; then "
        f"sign outside: {later}"
    )


def unseen_hooks(words: list[str], workspace: str, shown: Sequence[str]) -> str | None:
    """Hooks of core.hooksPath that this command would have run outside. `shown`: folders that the
    sandbox shows."""
    named = [value for text in texts_of_settings(workspace) for value in _hooks_path(text)]
    if not named or "--no-verify" in words:
        return None
    home = home_inside(workspace)
    folder = os.path.join(workspace, _expanded(named[-1], home))
    visible = (*shown, f"{home}/.config/git")
    if lies_below(folder, visible) or not lies_below(folder, (*HIDDEN, home)):
        return None
    hooks = [hook for hook in _HOOKS.get(words[0], ()) if os.access(f"{folder}/{hook}", os.X_OK)]
    if not hooks:
        return None
    return (
        f"the sandbox does not show your hooks (core.hooksPath), and git did not run "
        f"{', '.join(hooks)}: to run them inside, add --read {quote(folder)}"
    )


def texts_of_settings(workspace: str) -> list[str]:
    """The texts of all settings, those that count most last."""
    home = home_inside(workspace)
    own = ("/etc/gitconfig", f"{home}/.config/git/config", f"{home}/.gitconfig")
    files = (*map(os.path.realpath, own), os.path.join(workspace, ".git", "config"))
    return [read(path).decode(errors="replace") for path in files]


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _hooks_path(text: str) -> list[str]:
    section, found = "", []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").lower()
        key, equals, value = line.partition("=")
        if section == "core" and equals and key.strip().lower() == "hookspath":
            found.append(value.strip().strip('"'))
    return found
