"""Folders of the user, by descriptors: how old they are, and opening what a command closed."""

from __future__ import annotations

import logging
import os

from sandboxd.linux.birth_time import birth_ns
from sandboxd.workspace_guard.dirfd import make_accessible, open_folder, open_root

log = logging.getLogger(__name__)


def born_ns(folder: str) -> int | None:
    """When it was made; None where the file system does not keep that."""
    try:
        fd = open_root(folder)
    except OSError:
        return None
    try:
        return birth_ns(fd)
    finally:
        os.close(fd)


def open_again(root: str, folder: str) -> bool:
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
