"""Repositories that a command made, searched for when it ends.

A folder becomes a repository by a name that is made in it, which changes the folder's ctime, and no
command can set that. So one system call for each folder that is known from the plan shows where to
look. What is not known was made, moved or renamed, and is searched as a whole, within bounds. The
birth time of a folder shows whether it was there before, wherever it was moved meanwhile.
"""

from __future__ import annotations

import os
import posixpath
import stat
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sandboxd.platform.current import files
from sandboxd.policy.data.protected_names import OTHER_REPOSITORIES
from sandboxd.policy.protected import nested_git, scan_limits
from sandboxd.policy.protected.distant_git import Searched
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.workspace_guard import running_commands
from sandboxd.workspace_guard.current_platform import born_ns, restore_access
from sandboxd.workspace_guard.moves import Moves
from sandboxd.workspace_guard.run_clock import COARSE_NS, RunClock

MOST_FOLDERS = 65_536  # that are listed
DEEPEST = 64
_MOST_ENTRIES = 4096  # until the clock is asked


@dataclass(slots=True)
class FoundRepositories:
    """Repositories by their folder, and others by their `.hg`: in folders that were there before,
    and in new ones (or the roots, which are watched).

    `opened`: folders that were closed meanwhile; `closed`: those that could not be opened.
    """

    git: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    new_git: list[str] = field(default_factory=list)
    new_others: list[str] = field(default_factory=list)
    opened: dict[str, None] = field(default_factory=dict)
    closed: dict[str, None] = field(default_factory=dict)
    complete: bool = True


class NewRepositories:
    """Make it before the command starts."""

    def __init__(self, before: Repositories) -> None:
        self.before = before
        self.clock = RunClock()
        self.elders = [one.clock for one in running_commands.running_in(before.roots)]
        self.times = {folder: _time(folder) for folder in before.folders}
        self.searched = [one.last for one in before.distant]

    def changed(self) -> list[str] | None:
        """The near folders that changed; None if there is nothing to search."""
        found = [one for one, time in self.times.items() if _time(one) != time or not time]
        return found if found or self.searched else None

    def follow(self, moves: Moves) -> None:
        """Folders were moved: what was known of them holds where they are now."""
        self.before = followed(self.before, moves)
        placed = ((moves.path(folder), time) for folder, time in self.times.items())
        self.times = {folder: time for folder, time in placed if folder is not None}
        self.searched = [one and _followed(one, moves) for one in self.searched]

    def find(self, changed: Iterable[str]) -> FoundRepositories:
        """For a thread."""
        return _Search(self).run(changed)


def followed(before: Repositories, moves: Moves) -> Repositories:
    """Without what is at a place that cannot be told."""
    return replace(
        before,
        paths=moves.paths(before.paths),
        others=moves.paths(before.others),
        roots=moves.paths(before.roots),
        folders=moves.paths(before.folders),
        main_checkouts=moves.paths(before.main_checkouts),
        closed=moves.paths(before.closed),
        read_only=moves.paths(before.read_only),
    )


def _followed(known: Searched, moves: Moves) -> Searched:
    return Searched("\0".join(moves.paths(known.folders)), known.at_ns)


class _Search:
    def __init__(self, of: NewRepositories) -> None:
        self._of = of
        self._before = of.before
        self._since_ns = of.clock.since_ns
        # What a command makes that runs already is no folder of the user's.
        self._oldest_ns = min(one.since_ns for one in (of.clock, *of.elders))
        self._distant = [folder for one in of.searched if one for folder in one.folders]
        self._known = {*of.before.folders, *self._distant}
        self._repositories = frozenset(of.before.paths)
        self._others = frozenset(of.before.others)
        self._made = FoundRepositories()
        self._seen: set[str] = set()
        self._until = (0.0, 0.0)

    def run(self, changed: Iterable[str]) -> FoundRepositories:
        """What is known first: no number of new folders keeps a folder of the user from being
        judged."""
        starts: dict[str, bool] = {}
        if None in self._of.searched:  # its folders were forgotten
            starts |= {one: _time(one) >= self._since_ns for one in self._before.folders}
        starts |= dict.fromkeys(changed, True)
        for folder, is_fresh in starts.items():
            self._judge(folder, is_fresh)
        for folder, is_fresh in self._changed_distant():
            starts[folder] = is_fresh
            self._judge(folder, is_fresh)
        self._until = scan_limits.search_deadlines()
        self._walk(starts)
        return self._made

    def _changed_distant(self) -> Iterator[tuple[str, bool]]:
        """Since they were searched, and whether that was since the command began. One by one: a
        folder that was opened again shows those in it."""
        since = self._since_ns
        oldest = min([since, *(one.at_ns - COARSE_NS for one in self._of.searched if one)])
        for folder in self._distant:
            changed = _time(folder)
            if changed >= oldest and changed:
                yield folder, changed >= since

    def _judge(self, folder: str, is_fresh: bool) -> None:
        """Note it if it has become a repository; not if that was before the command."""
        if not is_fresh or folder in self._seen or not self._is_open(folder, is_fresh):
            return
        self._seen.add(folder)
        marks = _marks(folder)
        git = nested_git.is_repository(folder, marks) and folder not in self._repositories
        others = [posixpath.join(folder, one) for one in OTHER_REPOSITORIES if one in marks]
        others = [one for one in others if one not in self._others]
        if not git and not others:
            return
        was_there, made = self._was_there(folder), self._made
        if git:
            is_judged = was_there and folder not in self._before.roots
            (made.git if is_judged else made.new_git).append(folder)
        (made.others if was_there else made.new_others).extend(others)

    def _was_there(self, folder: str) -> bool:
        if folder in self._known:
            return True
        born = born_ns(folder)
        return born is not None and born < self._oldest_ns

    def _is_open(self, folder: str, is_fresh: bool) -> bool:
        """A command closes a folder to hide what it made there: it is opened again."""
        if sys.platform == "win32" or files.access(folder, os.R_OK | os.X_OK):
            return True
        if folder in self._made.closed or folder in self._before.closed:
            return False
        if not is_fresh or _time(folder) < self._since_ns:
            return False
        root = next(iter(self._before.by_root([folder])))
        is_open = restore_access(root, folder)
        (self._made.opened if is_open else self._made.closed)[folder] = None
        return is_open

    def _walk(self, starts: dict[str, bool]) -> None:
        """Into these, and all below them that is not known; those that were there before first, so
        that no number of new folders hides one that a command brought back."""
        first = deque((folder, is_fresh, 0) for folder, is_fresh in starts.items())
        then: deque[tuple[str, bool, int]] = deque()
        looked = 0
        until, until_cpu = self._until
        while first or then:
            folder, is_fresh, depth = (first or then).popleft()
            late = time.monotonic() > until or time.thread_time() > until_cpu
            if late or looked >= MOST_FOLDERS or depth > DEEPEST:
                self._made.complete = False
                return
            looked += 1
            status = _status(folder)
            if status is None or not stat.S_ISDIR(status.st_mode):
                continue  # a link in its place is judged, and leads to what is searched or not
            changed = is_fresh or files.changed_ns(status) >= self._since_ns
            self._judge(folder, changed)
            if self._is_open(folder, changed):
                for path in self._unknown(folder):
                    pending = first if self._was_there(path) else then
                    pending.append((path, changed, depth + 1))

    def _unknown(self, folder: str) -> list[str]:
        found: list[str] = []
        try:
            with files.scandir(folder) as entries:
                for count, entry in enumerate(entries, 1):
                    if count % _MOST_ENTRIES == 0 and time.thread_time() > self._until[1]:
                        self._made.complete = False
                        break
                    name = entry.name
                    if not entry.is_dir(follow_symlinks=False) or name.lower() == ".git":
                        continue
                    if nested_git.is_step(name, True):
                        found.append(entry.path)
        except OSError:  # removed meanwhile
            return []
        return [path for path in found if path not in self._known]


def _marks(folder: str) -> set[str]:
    """What makes it a repository, by whatever spelling the file system finds it."""
    return {one for one in nested_git.MARKS if files.lexists(posixpath.join(folder, one))}


def _time(folder: str) -> int:
    """0 where the system does not tell it, or it is gone."""
    status = _status(folder)
    return files.changed_ns(status) if status is not None else 0


def _status(folder: str) -> os.stat_result | None:
    try:
        return files.lstat(folder)
    except OSError:
        return None
