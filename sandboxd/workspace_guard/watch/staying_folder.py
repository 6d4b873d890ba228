"""A protected folder that a running command has made: it stays until the command ends, emptied.

Git and scripts write several files into a new folder, and fail if it is taken away meanwhile. So
folders stay, and each file in them is moved aside a moment after it appeared: until then git looks
at a link that it made, and programs rename what they wrote. The kept tree has the same shape.

The command is still running: no link is followed, and a daemon of root works only in folders of
the workspace's owner, who could do the same.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from functools import partial

from sandboxd.platform.open_flags import OPEN_FOLDER
from sandboxd.posix.descriptors import change_mode
from sandboxd.workspace_guard.dirfd import Entry, enter, is_gone, list_names, stat_at
from sandboxd.workspace_guard.quarantine.quarantine import make_folder, rename

GRACE_S = 0.05  # between two system calls of a program on a busy machine
_MOST_ENTRIES = 2048  # at one look: folders, and files that were not moved yet
_DEEPEST = 32
Watch = Callable[[int], Callable[[str], bool]]
_File = tuple[str, int]  # a name that is used again for another file is new


class StayingFolder:
    """`kept`: the open folder at `path` that takes what is moved; closed by `close`.

    For a thread. OSError: the folder cannot stay. What is left is then moved as a whole.
    """

    def __init__(self, kept: int, path: str) -> None:
        self.path = path
        self._kept = kept
        self._owner = os.fstat(kept)
        self._seen: dict[_File, float] = {}  # at the last look, and since when
        self._seen_before: dict[_File, float] = {}
        self._left = 0
        self._finished = self._remove = False

    def close(self) -> None:
        os.close(self._kept)

    def empty(self, entry: Entry, watch: Watch, *, finished: bool, remove: bool) -> None:
        """Move the files aside that are not new; `finished`: all of them; `remove`: and folders.
        `watch` is called with each folder, and tells which of its files are not waited for."""
        self._finished, self._remove = finished, remove
        self._left = _MOST_ENTRIES
        self._seen_before, self._seen = self._seen, {}
        kept = partial(os.dup, self._kept)
        is_emptied = self._is_emptied(entry.parent, entry.name, kept, watch, "")
        if not is_emptied and not is_gone(entry.parent, entry.name):
            raise OSError(errno.ENOTDIR, "it cannot be entered")

    def _is_emptied(
        self, parent: int, name: str, open_kept: Callable[[], int], watch: Watch, below: str
    ) -> bool:
        """False if there is no folder of that name."""
        folder = enter(parent, name)
        if folder is None:
            return False
        with contextlib.ExitStack() as held:
            held.callback(os.close, folder)
            kept = open_kept()
            held.callback(os.close, kept)
            self._check(folder)
            self._check(kept)
            if os.path.samestat(os.fstat(folder), os.fstat(kept)):
                raise OSError(errno.EEXIST, "it is the folder that keeps its files")
            self._empty(folder, kept, watch, below)
            if self._remove:
                change_mode(kept, stat.S_IMODE(os.fstat(folder).st_mode) & 0o777 | stat.S_IRWXU)
                os.rmdir(name, dir_fd=parent)
        return True

    def _empty(self, folder: int, kept: int, watch: Watch, below: str) -> None:
        is_hurried = watch(folder)
        names = list_names(folder, self._left) if below.count("/") < _DEEPEST else None
        if names is None:
            raise OSError(errno.E2BIG, "more than can be moved one by one")
        self._left -= len(names)
        for name in names:
            path = f"{below}{name}"
            inner = partial(self._open_kept, kept, name)
            if self._is_emptied(folder, name, inner, watch, f"{path}/"):
                continue
            if self._finished or is_hurried(name) or self._is_due(folder, name, path):
                _move(folder, name, kept)

    def _open_kept(self, kept: int, name: str) -> int:
        try:
            return make_folder(kept, name, self._owner)
        except FileExistsError:
            return os.open(name, OPEN_FOLDER, dir_fd=kept)

    def _check(self, folder: int) -> None:
        if os.fstat(folder).st_uid != self._owner.st_uid:
            raise PermissionError(errno.EPERM, "a folder of another user")

    def _is_due(self, folder: int, name: str, path: str) -> bool:
        found, now = stat_at(folder, name), time.monotonic()
        file = path, found.st_ino if found is not None else 0
        self._seen[file] = self._seen_before.get(file, now)
        return now - self._seen[file] >= GRACE_S


def _move(folder: int, name: str, kept: int) -> None:
    """The newest of a name stays. To rename a file over a hard link of itself does nothing."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=kept)
    try:
        rename(folder, name, kept, name)
    except FileNotFoundError:
        if os.fstat(kept).st_nlink == 0:
            raise  # the command removed it
