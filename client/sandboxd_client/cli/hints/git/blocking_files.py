"""Protected files that git could not remove on an earlier branch, and that now are in its way."""

from __future__ import annotations

import os

from sandboxd_client.cli.connect import connect
from sandboxd_client.cli.hints.git.files import git_dirs, index_of, lists, read
from sandboxd_client.cli.hints.git.hints import OUTSIDE, is_repository, is_stopped
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.request import policy
from sandboxd_client.client import Client
from sandboxd_proto.errors import SandboxdError

_MOST_WORDS = 3
# The commits that git was on its way to, besides those that the command names.
_TAKES_COMMIT = ("checkout", "switch", "merge", "reset", "cherry-pick", "revert", "rebase")
_AIMS = ("FETCH_HEAD", "ORIG_HEAD", "REBASE_HEAD", "CHERRY_PICK_HEAD", "refs/stash",
         "refs/stash^3", "refs/bisect/bad")  # fmt: skip


def left_in_the_way(options: Options, words: list[str], workspace: str) -> str | None:
    """For a command that failed to check a commit out: what git does not track here, what is
    read-only inside, and what the commit has. It is read by git in a sandbox of its own."""
    index = index_of(os.path.join(workspace, ".git", "index"))
    if index is None:
        return None
    try:
        with connect(options) as client:
            protected = client.check(**policy(options, os.environ)).plan.protected
            inside = [os.path.relpath(path, workspace) for path in protected]
            untracked = [
                path
                for path in inside
                if path not in (".", ".git")
                and not path.startswith((".git/", ".."))
                and os.path.lexists(os.path.join(workspace, path))
                and not is_repository(os.path.join(workspace, path))
                and not lists(index, os.fsencode(path))
            ]
            if not untracked or _is_conflict(client, workspace):
                return None
            found = in_commits(client, words, untracked, workspace)
            return _told(found, workspace) if found else None
    except SandboxdError:
        pass
    return None


def _is_conflict(client: Client, workspace: str) -> bool:
    found = client.execute(["git", "ls-files", "-u"], preset="read-only", workspace=workspace)
    return bool(found.stdout.text)


def in_commits(client: Client, words: list[str], untracked: list[str], workspace: str) -> list[str]:
    """Those of the untracked files that a commit has which git was on its way to."""
    named = [word for word in words[1:] if not word.startswith("-") and "\n" not in word]
    began = os.fsdecode(read(os.path.join(git_dirs(workspace)[1], "BISECT_START")))
    named = named[:_MOST_WORDS]
    trees = [*named, *_AIMS, *began.splitlines()[:1]]
    asked = [(f"{tree}^{{commit}}", "") for tree in named]
    asked += [(f"{tree}:./{path}", path) for tree in trees for path in untracked]
    answers = client.execute(
        ["git", "cat-file", "--batch-check"], preset="read-only", workspace=workspace,
        stdin="".join(f"{name}\n" for name, _ in asked),
    ).stdout.text.splitlines()  # fmt: skip
    there = [path for (_, path), said in zip(asked, answers, strict=False)
             if not said.endswith(" missing")]  # fmt: skip
    if named and words[0] in _TAKES_COMMIT and "" not in there:
        return []  # a misspelt name is the reason
    return [*filter(None, dict.fromkeys(there))]


def _told(paths: list[str], workspace: str) -> str:
    again = "then --continue or --abort" if is_stopped(workspace) else f"or {OUTSIDE}"
    return (
        f"git cannot replace what is read-only inside, and is not on this branch "
        f"({', '.join(paths[:3])}): remove it outside, {again}"
    )
