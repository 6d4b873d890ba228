"""Protected files that git could not remove on an earlier branch, and that now are in its way."""

from __future__ import annotations

import os

from sandboxd_client.cli.connect import connect
from sandboxd_client.cli.git_hints import index_of, lists
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.request import policy
from sandboxd_proto.errors import SandboxdError

_MOST_TREES = 3


def left_in_the_way(options: Options, words: list[str], workspace: str) -> str | None:
    """For a switch that failed: what git does not track here, what is read-only inside, and what
    the other commit has. That commit is read by git in a sandbox of its own."""
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
                if path != "."
                and not path.startswith((".git/", ".git", ".."))
                and os.path.lexists(os.path.join(workspace, path))
                and not lists(index, os.fsencode(path))
            ]
            for tree in _trees(words) if untracked else ():
                ask = ["git", "ls-tree", "--name-only", tree, "--", *untracked]
                found = client.execute(ask, preset="read-only", workspace=workspace)
                if found.exit_code == 0 and found.stdout.text:
                    return _told(found.stdout.text.splitlines())
    except SandboxdError:
        pass
    return None


def _trees(words: list[str]) -> list[str]:
    if words[0] == "pull":
        return ["FETCH_HEAD"]
    return [word for word in words[1:] if not word.startswith("-")][:_MOST_TREES]


def _told(paths: list[str]) -> str:
    return (
        f"git cannot replace what is read-only inside, and is not on this branch "
        f"({', '.join(paths[:3])}): remove it outside, or run this git command outside of the "
        "sandbox"
    )
