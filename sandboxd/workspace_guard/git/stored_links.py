"""Links in `refs` and `objects`: git on the host would make and remove files where they lead.

`git branch a/b` makes `b` behind a link `refs/heads/a`; `git gc` writes to and removes files in the
folder that `objects/pack` leads to. A pipe among the refs blocks git for ever.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from sandboxd.workspace_guard.dirfd import is_distrusted, listable, stat_at
from sandboxd.workspace_guard.git.links import enter_below, link_offence
from sandboxd.workspace_guard.quarantine.quarantine import Offence
from sandboxd.workspace_guard.run_clock import RunClock

MOST_ENTRIES = 2_000_000
_MOST_FOLDERS = 32
# Git and git-lfs write files under names of their own in these.
_STORES = (
    "objects", "objects/info", "objects/info/commit-graphs", "objects/pack",
    "lfs", "lfs/objects", "lfs/tmp", "lfs/cache", "reftable",
)  # fmt: skip
_Stamp = tuple[int, int, int]


class StoredLinks:
    """Make it before the command starts: what was a link in `objects` then may stay one.

    In `refs` only links to plain files may be, however old: git replaces those. `is_new`: the
    command made this git dir.
    """

    def __init__(self, folder: int, git_dir: str, *, is_new: bool = False) -> None:
        self._folder = folder
        self._path = git_dir
        self._clock = RunClock()
        watched = self._watched() if not is_new else []
        self._before = {name: self._stamp(name) for name in watched}

    @property
    def unchanged(self) -> bool:
        """Whether no name was added to a folder; False if that is unknown."""
        return bool(self._before) and all(
            self._stamp(name) == stamp and (stamp is None or self._is_past(stamp))
            for name, stamp in self._before.items()
        )

    def _is_past(self, stamp: _Stamp) -> bool:
        return stamp[2] < self._clock.since_ns and not is_distrusted(stamp[0])

    def look(self) -> list[Offence]:
        if self.unchanged:
            return []
        names = [*self._in_stores(), *self._in_refs()]
        return [link_offence(self._folder, self._path, name) for name in names]

    def _watched(self) -> list[str]:
        """The folders to compare the times of; none if there are too many."""
        found = ["refs"]
        for folder in found:
            found += [inner for inner, kind in self._entries(folder) if kind == stat.S_IFDIR]
            if len(found) > _MOST_FOLDERS:
                return []
        return [*_STORES, *found]

    def _stamp(self, name: str) -> _Stamp | None:
        found = stat_at(self._folder, name)
        return (found.st_dev, found.st_ino, found.st_ctime_ns) if found is not None else None

    def _entries(self, folder: str) -> Iterator[tuple[str, int]]:
        """The entries that are no plain files, with their kind: S_IFDIR, or 0 for others.

        The folder itself is named with 0 if it has too many entries to look at.
        """
        place = enter_below(self._folder, folder)
        if place is None:
            return
        try:
            fd = listable(place)
        except OSError:
            return
        finally:
            os.close(place)
        try:
            with os.scandir(fd) as entries:
                for count, entry in enumerate(entries):
                    if count >= MOST_ENTRIES:
                        yield folder, 0
                        return
                    if entry.is_dir(follow_symlinks=False):
                        yield f"{folder}/{entry.name}", stat.S_IFDIR
                    elif not entry.is_file(follow_symlinks=False):
                        yield f"{folder}/{entry.name}", 0
        finally:
            os.close(fd)

    def _in_stores(self) -> list[str]:
        return [
            name
            for folder in _STORES
            for name, kind in self._entries(folder)
            if kind == 0 and self._is_new(folder, name)
        ]

    def _is_new(self, folder: str, name: str) -> bool:
        """A rename changes the time of what is renamed, but not of what is in a folder."""
        now, before = self._stamp(folder), self._before.get(folder)
        link = self._stamp(name)
        same_folder = now is not None and before is not None and now[:2] == before[:2]
        return link is None or not same_folder or not self._is_past(link)

    def _in_refs(self) -> list[str]:
        found: list[str] = []
        pending = ["refs"]
        while pending:
            for name, kind in self._entries(pending.pop()):
                if kind == stat.S_IFDIR and len(pending) < MOST_ENTRIES:
                    pending.append(name)
                elif not self._leads_to_file(name):
                    found.append(name)
        return found

    def _leads_to_file(self, name: str) -> bool:
        try:
            return stat.S_ISREG(os.stat(name, dir_fd=self._folder).st_mode)
        except OSError:
            return False
