"""Which files that lie aside a git command has recorded as deleted."""

from __future__ import annotations

import os

from sandboxd_client.cli.connect import connect
from sandboxd_client.cli.denial_lines import is_moved_aside
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.plain_text import quote
from sandboxd_proto.errors import SandboxdError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def deleted_by(options: Options, name: str, code: int, workspace: str) -> list[str]:
    """After `git add` and the like: all that was missing. After a commit: what it deletes, which
    git says in a sandbox of its own."""
    missing = list(options.missing)
    if name != "commit":
        return missing
    if code:
        return []
    ask = ["git", "diff", "--name-only", "--diff-filter=D", "-z", "--no-ext-diff", "--no-textconv",
           "--no-renames", "--relative", "HEAD^", "HEAD", "--", *missing]  # fmt: skip
    try:
        with connect(options) as client:
            said = client.execute(ask, preset="read-only", workspace=workspace)
    except SandboxdError:
        return []
    deleted = said.stdout.text.split("\0") if said.exit_code == 0 else []
    return [one for one in missing if any(_holds(one, path) for path in deleted)]


def miscounted(words: list[str], denials: Sequence[dict[str, Any]], printed: bytes) -> str | None:
    """After `git merge` and `git pull`, which count the changed lines of the files at their end.
    `printed`: the end of the output."""
    if words[0] not in ("merge", "pull"):
        return None
    moved = [str(d.get("target")).rpartition("/")[2] for d in denials if is_moved_aside(d)]
    counts = [line.rpartition(" | ") for line in printed.decode(errors="replace").splitlines()]
    empty = [name.strip() for name, _, count in counts if count.strip() == "0"]
    if not any(part in moved for name in empty for part in name.split("/")):
        return None
    return (
        "git counted what was moved aside after that, so its numbers for it are wrong (| 0): "
        "sandboxctl kept diff shows what it holds"
    )


def removed_repository(denials: Sequence[dict[str, Any]]) -> str | None:
    """After `rm -r .git`: a part of it is protected, and the rest is gone."""
    targets = [str(d.get("target")) for d in denials if d.get("kind") == "protected_path"]
    git_dir = next((t.removesuffix("/config") for t in targets if t.endswith("/.git/config")), None)
    if git_dir is None:
        return None
    lost = "" if _has_objects(git_dir) else "; only what is protected in it is left of this one"
    return f"a repository is removed outside of the sandbox, with rm -rf {quote(git_dir)}{lost}"


def _has_objects(git_dir: str) -> bool:
    try:
        return bool(os.listdir(os.path.join(git_dir, "objects")))
    except OSError:
        return False


def _holds(kept: str, path: str) -> bool:
    kept = kept.rstrip("/")
    return path == kept or path.startswith(f"{kept}/")
