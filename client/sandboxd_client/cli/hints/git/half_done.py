"""What a git command changed before it failed at a protected file: it refuses to run again over it.

Git had found the files that it changes as its index has them, so that version is lost nowhere.
"""

from __future__ import annotations

import os

from sandboxd_client.cli.connect import connect
from sandboxd_client.cli.hints.git.blocking_files import in_commits
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.plain_text import quote
from sandboxd_proto.errors import SandboxdError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST = 20  # a longer list is not pasted
_STATUS = ["git", "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all"]


def undo_steps(
    options: Options, words: list[str], left: Sequence[str], workspace: str
) -> str | None:
    """For the files of the work tree that changed since the command began. Untracked ones only
    where a commit has them."""
    try:
        with connect(options) as client:
            said = client.execute(_STATUS, preset="read-only", workspace=workspace).stdout.text
            entries = [(one[:2], one[3:]) for one in said.split("\0") if one[3:] not in ("", *left)]
            recent = [(state, p) for state, p in entries if _is_recent(options, workspace, p)]
            changed = [path for state, path in recent if state[1] in "MD"]
            new = [path for state, path in recent if state == "??"]
            new = in_commits(client, words, new, workspace) if new else []
    except SandboxdError:
        return None
    if len(changed) + len(new) > _MOST:
        return None
    steps = [f"git checkout -- {' '.join(map(quote, changed))}"] if changed else []
    steps += [f"rm {' '.join(map(quote, new))}"] if new else []
    return "; ".join(steps) or None


def _is_recent(options: Options, workspace: str, path: str) -> bool:
    """Whether it was changed since the command began. For a file that is gone: its folder."""
    path = os.path.join(workspace, path)
    if not os.path.lexists(path):
        path = os.path.dirname(path)
    try:
        return os.lstat(path).st_ctime >= options.began
    except OSError:
        return False
