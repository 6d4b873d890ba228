"""Back up the kept folder while a command runs `git clean`, which deletes it.

Git ignores the folder, and `git clean -x` deletes what git ignores. What the owner deletes while
another command runs stays deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from sandboxd.workspace_guard import snapshot
from sandboxd.workspace_guard.dirfd import enter, open_root, stat_at
from sandboxd.workspace_guard.snapshot import Node, SnapshotBudget
from sandboxd_proto.locations import KEPT_FOLDER

_MOST_ENTRIES, _MOST_BYTES = 512, 8 << 20


def remember_kept(workspace: str) -> Callable[[], bool] | None:
    """Writes it again, when the command's tree is dead, and tells whether anything was missing.

    None if there is nothing, or more than is kept in memory. Links are not followed.
    """
    try:
        root = open_root(workspace)
    except OSError:
        return None
    try:
        node = snapshot.keep(root, KEPT_FOLDER, SnapshotBudget(_MOST_ENTRIES, _MOST_BYTES))
    except OSError:
        return None
    finally:
        os.close(root)
    return partial(_put_back, workspace, node) if node.whole and node.children else None


def _put_back(workspace: str, before: Node) -> bool:
    root = open_root(workspace)
    try:
        if stat_at(root, KEPT_FOLDER) is None:
            snapshot.write(root, KEPT_FOLDER, before)
            return True
        folder = enter(root, KEPT_FOLDER)
        if folder is None:
            return False
        try:
            missing = [name for name in before.children if stat_at(folder, name) is None]
            for name in missing:
                snapshot.write(folder, name, before.children[name])
        finally:
            os.close(folder)
        return bool(missing)
    finally:
        os.close(root)
