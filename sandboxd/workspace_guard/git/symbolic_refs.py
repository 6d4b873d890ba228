"""Refs that name another ref: git on the host makes the file of that name when it updates the ref.

A branch that holds `ref: commondir` makes git write a commit's name to the file `commondir` of the
git dir, and then use another repository. Git itself writes names below `refs/` only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from sandboxd.workspace_guard.dirfd import is_distrusted, listable, read_file, stat_at
from sandboxd.workspace_guard.git.links import enter_below, inner_offence
from sandboxd.workspace_guard.git.ref_names import is_ref
from sandboxd.workspace_guard.quarantine.quarantine import Offence
from sandboxd.workspace_guard.run_clock import RunClock

_MOST_ENTRIES = 2_000_000
_MOST_COMPARED = 256
_SMALL = 4096
_Stamp = tuple[int, int, int]


class SymbolicRefs:
    """Make it before the command starts: a ref of the user stays as it is.

    `is_new`: the command made this git dir.
    """

    def __init__(self, folder: int, git_dir: str, *, is_new: bool = False) -> None:
        self._folder = folder
        self._path = git_dir
        self._clock = None if is_new else RunClock()
        self._before: dict[str, _Stamp] | None = {}
        for name, stamp in () if is_new else self._refs():
            self._before[name] = stamp
            if len(self._before) > _MOST_COMPARED:
                self._before = None
                break

    @property
    def unchanged(self) -> bool:
        """Whether no ref was written where it is; False if that is unknown. New ones are names
        that were added to a folder."""
        return self._before is not None and all(
            self._stamp(name) == stamp and self._is_past(stamp)
            for name, stamp in self._before.items()
        )

    def look(self) -> list[Offence]:
        return [
            inner_offence(self._folder, self._path, name, "git would write another file")
            for name, stamp in self._refs()
            if not self._is_past(stamp) and self._leads_out(name)
        ]

    def _is_past(self, stamp: _Stamp) -> bool:
        if self._clock is None or is_distrusted(stamp[0]):
            return False
        return stamp[2] < self._clock.since_ns

    def _stamp(self, name: str) -> _Stamp | None:
        found = stat_at(self._folder, name)
        return _stamp(found) if found is not None else None

    def _refs(self) -> Iterator[tuple[str, _Stamp]]:
        """The files in `refs`."""
        pending = ["refs"]
        count = 0
        while pending:
            at = pending.pop()
            folder = enter_below(self._folder, at)
            if folder is None:
                continue
            try:
                fd = listable(folder)
            except OSError:
                continue
            finally:
                os.close(folder)
            try:
                with os.scandir(fd) as entries:
                    for entry in entries:
                        count += 1
                        if count > _MOST_ENTRIES:
                            return
                        name = f"{at}/{entry.name}"
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(name)
                        elif entry.is_file(follow_symlinks=False):
                            found = stat_at(fd, entry.name)
                            if found is not None:
                                yield name, _stamp(found)
            finally:
                os.close(fd)

    def _leads_out(self, ref: str) -> bool:
        at, _, name = ref.rpartition("/")
        folder = enter_below(self._folder, at)
        if folder is None:
            return False
        try:
            # Some file systems remove the old file before they rename a new one: look twice.
            data = read_file(folder, name, _SMALL) or read_file(folder, name, _SMALL)
            found = stat_at(folder, name)
        finally:
            os.close(folder)
        if data is None:
            return found is not None and stat.S_ISREG(found.st_mode)
        return data.startswith(b"ref:") and not is_ref(data[4:].strip(b" \t\n\r\v\f"))


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_dev, found.st_ino, found.st_ctime_ns
