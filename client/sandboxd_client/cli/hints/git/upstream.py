"""The command line that sets an upstream outside, after git could not write .git/config."""

from __future__ import annotations

import os

from sandboxd_client.cli.hints.git.files import git_dirs, read
from sandboxd_client.cli.plain_text import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADS, _REMOTES = "refs/heads/", "refs/remotes/"


def set_upstream(name: str, operands: Sequence[str], workspace: str) -> str:
    """After `git NAME` with these operands. Words in capitals stand for what cannot be known."""
    _, git_dir, common = git_dirs(workspace)
    branch = current_branch(git_dir)
    if name == "push":
        remote, pushed = (operands[0], operands[1:]) if operands else ("", ())
        source, _, target = (pushed[0].lstrip("+") if pushed else "HEAD").partition(":")
        if len(pushed) > 1:
            return line("", "")
        local = branch if source in ("HEAD", "@") else source.removeprefix(_HEADS)
        return line(
            f"{remote}/{target.removeprefix(_HEADS) or local}", local, remote_branches(common)
        )
    known = remote_branches(common)
    if name == "branch":
        branch = operands[0] if operands else ""
    named = [word for word in operands if word in known]
    alike = [one for one in known if one.partition("/")[2] == branch]
    return line((named or alike or [""])[0], branch, known)


def line(upstream: str, branch: str, known: Sequence[str] = ()) -> str:
    if not branch or not upstream or upstream not in known:
        return "git branch --set-upstream-to=REMOTE/BRANCH BRANCH"
    return f"git branch --set-upstream-to={quote(upstream)} {quote(branch)}"


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
