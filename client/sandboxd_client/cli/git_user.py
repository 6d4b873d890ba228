"""What the user's own git settings ask for, and a sandbox does not have: name, keys, hooks."""

from __future__ import annotations

import os

from sandboxd_client.cli.git_files import read
from sandboxd_client.cli.plain_text import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FATAL = 128
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
# What every sandbox of a preset shows.
_SHOWN = ("/usr", "/etc", "/opt", "~/.config/git")


def missing_identity(workspace: str) -> str | None:
    """No settings that the sandbox shows say who commits."""
    settings = _settings(workspace)
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


def unsigned(words: list[str], code: int, denials: Sequence[dict[str, Any]]) -> bool:
    """Whether a signature was asked for, by a word or by the settings, and its key is hidden."""
    if words[0] not in _SIGNS:
        return False
    asked = any(word.startswith(_SIGNS[words[0]]) for word in words[1:])
    keys = os.path.join(os.path.expanduser("~"), ".ssh", "")
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
    named = [value for text in _settings(workspace) for value in _hooks_path(text)]
    if not named or "--no-verify" in words:
        return None
    folder = os.path.join(workspace, os.path.expanduser(named[-1]))
    visible = (*shown, *map(os.path.expanduser, _SHOWN))
    if any(f"{folder}/".startswith(f"{one.rstrip('/')}/") for one in visible):
        return None
    hooks = [hook for hook in _HOOKS.get(words[0], ()) if os.access(f"{folder}/{hook}", os.X_OK)]
    if not hooks:
        return None
    return (
        f"the sandbox does not show your hooks (core.hooksPath), and git did not run "
        f"{', '.join(hooks)}: to run them inside, add --read {quoted(folder)}"
    )


def _settings(workspace: str) -> list[str]:
    """The texts of all settings, those that count most last."""
    home = os.path.expanduser("~")
    own = ("/etc/gitconfig", f"{home}/.config/git/config", f"{home}/.gitconfig")
    files = (*map(os.path.realpath, own), os.path.join(workspace, ".git", "config"))
    return [read(path).decode(errors="replace") for path in files]


def _hooks_path(text: str) -> list[str]:
    section, found = "", []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").lower()
        key, equals, value = line.partition("=")
        if section == "core" and equals and key.strip().lower() == "hookspath":
            found.append(value.strip().strip('"'))
    return found
