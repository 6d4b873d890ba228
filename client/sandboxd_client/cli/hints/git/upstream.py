"""The command line that sets an upstream outside, after git could not write .git/config."""

from __future__ import annotations

import os

from sandboxd_client.cli.hints.git.files import git_dirs, read
from sandboxd_client.cli.plain_text import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADS, _REMOTES = "refs/heads/", "refs/remotes/"
_CONFIG = "/.git/config"


def set_upstream(name: str, operands: Sequence[str], workspace: str, config: str) -> str:
    """After `git NAME` with these operands, which could not write `config`. Words in capitals stand
    for what cannot be known."""
    git = git_for(config, workspace)
    _, git_dir, common = git_dirs(workspace if git == "git" else config.removesuffix(_CONFIG))
    branch = current_branch(git_dir)
    if name == "push":
        remote, pushed = (operands[0], operands[1:]) if operands else ("", ())
        source, _, target = (pushed[0].lstrip("+") if pushed else "HEAD").partition(":")
        if len(pushed) > 1:
            return line("", "", git=git)
        local = branch if source in ("HEAD", "@") else source.removeprefix(_HEADS)
        upstream = f"{remote}/{target.removeprefix(_HEADS) or local}"
        return line(upstream, local, remote_branches(common), git=git)
    known = remote_branches(common)
    if name == "branch":
        branch = operands[0] if operands else ""
    named = [word for word in operands if word in known]
    alike = [one for one in known if one.partition("/")[2] == branch]
    return line((named or alike or [""])[0], branch, known, git=git)


def line(upstream: str, branch: str, known: Sequence[str] = (), *, git: str = "git") -> str:
    if not branch or not upstream or upstream not in known:
        return f"{git} branch --set-upstream-to=REMOTE/BRANCH BRANCH"
    return f"{git} branch --set-upstream-to={quote(upstream)} {quote(branch)}"


def git_for(config: str, workspace: str) -> str:
    """`git`, with -C for another repository than the workspace's: git -C or cd came before."""
    if not config.endswith(_CONFIG):
        return "git"
    top, _, common = git_dirs(workspace)
    own = (top + _CONFIG, os.path.join(common, "config"))
    return "git" if config in own else f"git -C {quote(config.removesuffix(_CONFIG))}"


def current_branch(git_dir: str) -> str:
    head = read(os.path.join(git_dir, "HEAD")).decode(errors="replace").strip()
    ref = head.removeprefix("ref: ")
    return ref.removeprefix(_HEADS) if ref.startswith(_HEADS) else ""


def remote_branches(common: str) -> list[str]:
    """As git calls them: origin/main."""
    top = os.path.join(common, _REMOTES)
    found = [
        os.path.relpath(os.path.join(folder, file), top)
        for folder, _, files in os.walk(top)
        for file in files
    ]
    for entry in read(os.path.join(common, "packed-refs")).decode(errors="replace").splitlines():
        ref = entry.partition(" ")[2]
        if ref.startswith(_REMOTES):
            found.append(ref.removeprefix(_REMOTES))
    return sorted({one.replace(os.sep, "/") for one in found})
