"""Restore access to folders of the user that a command closed, so that nothing is hidden."""

from __future__ import annotations

import logging
import os

from sandboxd.workspace_guard.dirfd import make_accessible, open_folder, open_root

log = logging.getLogger(__name__)


def restore_access(root: str, folder: str) -> bool:
    """Give its owner full access to a folder below `root`, or to that itself."""
    try:
        fd = open_root(root)
    except OSError:
        return False
    try:
        found = fd if folder == root else open_folder(fd, root, folder)
        if found is None:
            return False
        try:
            make_accessible(found)
        finally:
            if found != fd:
                os.close(found)
    except OSError:
        return False
    finally:
        os.close(fd)
    log.warning("%s was closed by a command, and is opened again", folder)
    return True
