"""What `git worktree add` leaves in a repository where it fails, or makes the worktree in a folder
that ends with the sandbox."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from sandboxd_client.cli.hints.git.files import git_dirs, read
from sandboxd_client.cli.plain_text import quote

_VALUED = ("-b", "-B", "--reason")


class Known(NamedTuple):
    """What a repository has: worktrees by the names of their folders in .git/worktrees, which is
    None where there is no such folder, and branches."""

    worktrees: frozenset[str] | None
    branches: frozenset[str]


def known(workspace: str) -> Known:
    common = git_dirs(workspace)[2]
    try:
        worktrees = frozenset(os.listdir(os.path.join(common, "worktrees")))
    except OSError:
        worktrees = None
    heads = os.path.join(common, "refs", "heads")
    branches = {
        os.path.relpath(os.path.join(folder, name), heads)
        for folder, _, names in os.walk(heads)
        for name in names
    }
    for line in read(os.path.join(common, "packed-refs")).decode(errors="replace").splitlines():
        branches.add(line.partition(" refs/heads/")[2])
    return Known(worktrees, frozenset(branches - {""}))


def add_hint(words: Sequence[str], code: int, workspace: str, before: Known | None) -> str | None:
    """After `worktree add`: what this one left is the difference to what was there before it."""
    after = known(workspace)
    place = _place(words[2:])
    made = (after.worktrees or frozenset()) - ((before and before.worktrees) or frozenset())
    lost = [name for name in made if not _leads_somewhere(workspace, name)]
    if place is None or (code == 0 and not lost):
        return None
    inside = os.path.realpath(place).startswith(os.path.realpath(workspace) + os.sep)
    if inside and before is not None and before.worktrees is None:
        return None  # it works there: what failed is git's own affair
    text = (
        f"{quote(place)} was not made. A worktree is made outside of the sandbox; then run "
        "commands in it with --workspace"
    )
    if before is None:
        return f"{text}. git worktree list and git branch show what this left"
    if inside and not any(_leads_somewhere(workspace, name) for name in before.worktrees or ()):
        text += (
            ". In a workspace without .git/worktrees it can be made inside, too: an earlier one "
            "left that folder here, and git worktree prune, outside, removes it"
        )
    cleaning = [f"git branch -d {quote(one)}" for one in sorted(after.branches - before.branches)]
    if lost or (before.worktrees is None and after.worktrees is not None):
        cleaning.insert(0, "git worktree prune")
    return f"{text}. To remove what this left, outside: {', '.join(cleaning)}" if cleaning else text


def _leads_somewhere(workspace: str, name: str) -> bool:
    """Whether the worktree's own .git file, which the entry names, is on this machine."""
    entry = os.path.join(git_dirs(workspace)[2], "worktrees", name)
    pointer = read(os.path.join(entry, "gitdir")).decode(errors="replace").strip()
    return bool(pointer) and os.path.lexists(os.path.join(entry, pointer))


def _place(rest: Sequence[str]) -> str | None:
    """The first word that is neither an option nor an option's value."""
    index, plain = 0, False
    while index < len(rest):
        word = rest[index]
        if plain or not word.startswith("-"):
            return word
        plain = word == "--"
        index += 2 if word in _VALUED else 1
    return None
