"""Notes beside the caches that name their workspace, so that unused caches can be removed.

Nothing here affects a plan, so these looks at the host are not recorded.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import time

from sandboxd.platform.current import files
from sandboxd.platform.regular_file import read_regular
from sandboxd_proto.cache_locks import NOTES

ABSENT_S = 30 * 86400.0


def cache_name(workspace: str) -> str:
    """The folder's name: readable, and no two workspaces share one."""
    data = os.fsencode(workspace)
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in posixpath.basename(workspace))
    return f"{name[:32]}-{hashlib.sha256(data).hexdigest()[:16]}"


def write_note(root: str, workspace: str) -> None:
    """No command can write it: only the cache itself is granted."""
    path = posixpath.join(root, NOTES, cache_name(workspace))
    if files.lexists(path):
        return
    os.makedirs(files.native(posixpath.dirname(path)), 0o700, exist_ok=True)
    text = b"%d\n%s" % (_device(workspace), os.fsencode(workspace))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | files.PRIVATE
    fd = os.open(files.native(path), flags, 0o600)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)


def _device(workspace: str) -> int:
    """Of the nearest folder above it that exists."""
    above = posixpath.dirname(workspace)
    while above != "/" and not files.isdir(above):
        above = posixpath.dirname(above)
    return files.stat(above).st_dev


def caches_of_gone_workspaces(root: str) -> list[tuple[str, str]]:
    """(cache, note) of each workspace that does not exist any more.

    Where a disk is not mounted the workspace is only absent, and its cache stays for ABSENT_S.
    """
    folder = posixpath.join(root, NOTES)
    try:
        names = os.listdir(files.native(folder))
    except OSError:
        return []
    notes = ((name, posixpath.join(folder, name)) for name in names)
    return [(posixpath.join(root, name), note) for name, note in notes if _is_gone(name, note)]


def _is_gone(name: str, note: str) -> bool:
    try:
        device, _, path = read_regular(files.native(note), 8192).partition(b"\n")
        workspace = os.fsdecode(path)
        if cache_name(workspace) != name:
            return False
        if files.lexists(workspace):
            os.utime(files.native(note))
            return False
        old = time.time() - files.lstat(note).st_mtime > ABSENT_S
        return old or int(device) == _device(workspace)
    except (OSError, ValueError):
        return False
