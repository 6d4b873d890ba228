"""Watches for protected paths that do not exist yet, and moves aside those that appear.

No placeholders are created: they would be visible on the host and stay after a crash. An event
takes time to arrive, so the guarantee is the sweep after the command; the watch makes the reaction
fast. A folder stays while the command runs, but is emptied (`staying_folders`). Files that exist
are watched in `existing_files`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from sandboxd.linux.openat import changed_error
from sandboxd.policy.data.git_work_names import RUNS_AT_ONCE
from sandboxd.policy.plan import JUDGED_RULES, Protected
from sandboxd.workspace_guard.dirfd import (
    Entry,
    enter,
    find,
    is_gone,
    list_names,
    nearest,
    open_planned,
)
from sandboxd.workspace_guard.git.git_dir import GitDir, GitInfo
from sandboxd.workspace_guard.git.planned_git import PlannedGit, planned_git
from sandboxd.workspace_guard.git.repository import open_exec_paths
from sandboxd.workspace_guard.git.top_folder import TopFolder
from sandboxd.workspace_guard.moves import Moves
from sandboxd.workspace_guard.quarantine import judged_file
from sandboxd.workspace_guard.quarantine.quarantine import JudgedFile, Moved, Quarantine
from sandboxd.workspace_guard.watch.case_insensitive import CACHED_S, open_snapshot
from sandboxd.workspace_guard.watch.linked_file import LinkedFile
from sandboxd.workspace_guard.watch.staying_folders import StayingFolders

if sys.platform == "linux":
    from sandboxd.workspace_guard.watch.folder_events import FolderEvents
else:
    from sandboxd.workspace_guard.watch.no_folder_events import FolderEvents

_Link = tuple[int, int, int]
_FEW, _MOST_LISTED = 8, 256


class AbsentPathsWatch:
    """One run's watch. Make it before the command starts; PathDenied: the plan is out of date.

    Wait until `fileno()` is readable, then ask `appeared()`. When nothing of the sandbox is alive
    any more, `sweep()`; then `close()`. For one thread at a time.
    """

    def __init__(
        self, protected: Sequence[Protected], writable: Sequence[str] = (),
        git_homes: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._watched = [p for p in protected if not p.present]
        self._git = planned_git(self._watched, git_homes, writable)
        self._open = contextlib.ExitStack()
        self._roots: dict[str, int] = {}
        self._folders = _by_folder(p for p in self._watched if p.rule not in JUDGED_RULES)
        self._judged: dict[Protected, JudgedFile] = {}
        self._links: dict[str, _Link] = {}
        self._reported: set[str] = set()
        self._ending: set[str] = set()
        self._unread: set[Protected] = set()
        self._made: set[Protected] = set()  # repositories
        self._put_back: list[Moved] = []
        self._prepared = False
        try:
            for root in {one.root for one in self._watched}:
                self._roots[root] = open_planned(root)
                self._open.callback(os.close, self._roots[root])
            self._evadable = open_snapshot(protected, writable)
            if self._evadable is not None:
                self._open.callback(self._evadable.close)
            # Watch first, then look: a path that appears in between is an event.
            watched = [one for one in self._watched if one.rule != "linked"]
            self._events = FolderEvents(watched, self._roots)
            self._open.callback(self._events.close)
            self._staying = StayingFolders(self._events)
            self._open.callback(self._staying.release)
            self._remember()
            for root in self._folders:
                for one in self._there(root):
                    self._note(one)
        except BaseException:
            self._open.close()
            raise

    def __enter__(self) -> AbsentPathsWatch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._events.fileno()

    def on_change(self, told: Callable[[], None] | None) -> None:
        """Its descriptor tells."""

    @property
    def calm(self) -> bool:
        """Whether it is certain that nothing has appeared or changed since this watch was made."""
        return (
            self._events.calm
            and not self._made
            and not self._staying
            and self._evadable is None
            and all(one.unchanged for one in self._judged.values())
        )

    @property
    def needs_thread(self) -> bool:
        """Whether `judge_unread` or `sweep` take too long for the event loop."""
        return self._events.backlog or any(one.needs_thread for one in self._judged.values())

    @property
    def large(self) -> bool:
        """Whether `prepare` has something to do."""
        return not self._prepared and any(one.large for one in self._git_dirs())

    def prepare(self) -> list[str]:
        """Read large files as they were before the run. For a thread."""
        self._prepared = True
        for one in self._git_dirs():
            if one.large:
                one.prepare()
        return []

    def begin(self) -> None:
        """A command starts: until `rest` the state before it counts for others that start."""
        for one in self._running():
            one.begin()

    def rest(self) -> None:
        """The command has ended, and the sweep is done."""
        for one in self._running():
            one.rest()

    def _running(self) -> list[GitDir | LinkedFile]:
        return [one for one in self._judged.values() if isinstance(one, GitDir | LinkedFile)]

    def _git_dirs(self) -> list[GitDir]:
        return [one for one in self._judged.values() if isinstance(one, GitDir)]

    def appeared(self) -> list[str]:
        """Protected paths that came into being since the last call, for some of the events.

        Never blocks. What takes long to judge is left for `judge_unread`.
        """
        touched = self._events.touched()
        # A path that existed only briefly may have been used.
        absent = [one for one in touched.surely if one.rule == "absent"]
        found = [one.path for one in absent if not self._staying.has(one)]
        found += self._restless([*touched.below, *((one, ".") for one in absent)])
        for one in touched.maybe:
            judged = self._judged.get(one)
            if self._staying.has(one):
                self._unread.add(one)
            elif judged is None:
                found += self._offending(one, finished=False)
            elif judged.needs_thread:
                self._unread.add(one)
            else:
                found += self._offences(judged, finished=False)
        return self._fresh(found)

    @property
    def read_all(self) -> bool:
        return self._events.read_all

    @property
    def unread(self) -> bool:
        return bool(self._unread)

    def judge_unread(self) -> list[str]:
        """The rest of `appeared`, for a thread."""
        unread, self._unread = self._unread, set()
        found: list[str] = []
        for one in unread:
            if one in self._judged:
                found += self._offences(self._judged[one], finished=False)
            else:
                found += self._not_emptied(one)
        return self._fresh(found)

    def judge_all(self) -> list[str]:
        """Judge everything when no command runs: unfinished git operations count as left behind."""
        overdue = self._staying.overdue()
        found: list[str] = []
        for one in self._watched:
            if self._staying.has(one) and one not in overdue:
                found += self._not_emptied(one)
        if overdue:
            self.sweep_only([one.path for one in overdue], finished=True)
        for judged in self._judged.values():
            found += self._offences(judged, finished=True)
        return self._fresh(found)

    def judge_changed(self, *, finished: bool) -> list[str]:
        """Judge by content what may have been written without an event: through a second name, a
        descriptor that stays open or a mapping. For a thread."""
        found = self._restored()
        for one in tuple(self._made):
            found += self._offending(one, finished=finished)
        for judged in self._judged.values():
            if judged.unchanged:
                continue
            if isinstance(judged, GitDir):
                judged.forget()
            found += self._offences(judged, finished=finished)
        return self._fresh(found)

    def _restored(self) -> list[str]:
        """Existing files that a mount does not keep where case is ignored."""
        changed = self._evadable.verify() if self._evadable is not None else []
        self._put_back += [Moved(one.path, one.moved_to) for one in changed]
        paths = [one.path for one in changed]
        self._ending.update(path for path in paths if RUNS_AT_ONCE.intersection(path.split("/")))
        return paths

    def ends_command(self, path: str) -> bool:
        """Whether the host could run what appeared there at once."""
        return path in self._ending or os.path.basename(path) in RUNS_AT_ONCE

    def sweep(self) -> list[Moved]:
        """Undo every forbidden change, when the whole tree is dead. For a thread."""
        if self._evadable is not None:
            time.sleep(CACHED_S)
        return self._swept(None, finished=True)

    def sweep_only(self, paths: Collection[str], *, finished: bool = False) -> list[Moved]:
        """Undo these while the command goes on. They are reported again if they come back."""
        moved = self._swept(frozenset(paths), finished=finished)
        self._reported.difference_update(paths)
        return moved

    def settle(self) -> None:
        """A sweep follows: what happened before it does not count against `calm` any more."""
        self._events.settle()
        self._reported.clear()

    def follow(self, moves: Moves) -> None:
        """Folders were moved: their descriptors stay, what goes by path follows."""
        self._git = self._git.followed(moves)
        for one in self._git_dirs():
            one.follow(moves)

    def close(self) -> None:
        self._open.close()

    def _remember(self) -> None:
        for one in self._watched:
            if one.rule in JUDGED_RULES:
                self._judged[one] = judged = _judged(self._roots[one.root], one, self._git)
                self._open.callback(judged.close)

    def _fresh(self, found: Iterable[str]) -> list[str]:
        fresh = sorted(set(found) - self._reported)
        self._reported.update(fresh)
        return fresh

    def _offences(self, judged: JudgedFile, *, finished: bool) -> list[str]:
        found = judged.look(finished=finished)
        self._ending.update(one.path for one in found if one.ends)
        return [one.path for one in found]

    def _swept(self, only: Collection[str] | None, *, finished: bool) -> list[Moved]:
        if finished:
            self._restored()
        moved, self._put_back = self._put_back, []
        quarantines = {root: Quarantine(fd, root) for root, fd in self._roots.items()}
        try:
            for root in self._folders:
                for one in self._there(root):
                    moved += self._moved(one, quarantines[root], only, finished=finished)
            if finished and only is None:
                self._staying.release()
            for one, judged in self._judged.items():
                moved += judged_file.undo(
                    judged, one.path, quarantines[one.root], only, finished=finished
                )
        finally:
            for quarantine in quarantines.values():
                quarantine.close()
        return moved

    def _there(self, root: str) -> list[Protected]:
        """Those that are there, or have a symlink in the way. Most are missing from one folder."""
        found: list[Protected] = []
        for members in self._folders[root]:
            folder, name, is_parent = nearest(self._roots[root], root, members[0].path)
            try:
                if is_parent:
                    found += _among(folder, members)
                elif not is_gone(folder, name):
                    found.append(members[0])
            finally:
                os.close(folder)
        return found

    def _note(self, one: Protected) -> None:
        with self._find(one.path, one.root) as entry:
            if entry is not None and not self._staying.join(one, entry):
                if not entry.is_link or entry.path != one.path or one.rule != "absent":
                    raise changed_error(one.path, "it did not exist")
                self._links[one.path] = _link(entry)

    def _find(self, path: str, root: str) -> contextlib.AbstractContextManager[Entry | None]:
        return find(self._roots[root], root, path)

    def _offending(self, one: Protected, *, finished: bool) -> list[str]:
        with self._find(one.path, one.root) as entry:
            if entry is None or self._is_permitted(one, entry):
                return []
            if one.rule != "new_repository" or not entry.is_dir:
                if one.rule == "new_repository":
                    self._ending.add(entry.path)  # git looks where it leads
                return [entry.path]
            git_dir = enter(entry.parent, entry.name)
            if git_dir is None:
                return [entry.path]
            self._made.add(one)
            try:
                exec_paths = open_exec_paths(
                    git_dir, finished=finished, writable=(one.root, *self._git.writable)
                )
            finally:
                os.close(git_dir)
            return [os.path.join(entry.path, name) for name in exec_paths]

    def _is_permitted(self, one: Protected, entry: Entry) -> bool:
        if entry.path != one.path:
            return False  # a symlink in the place of a folder above
        return self._links.get(one.path) == _link(entry)

    def _moved(
        self, one: Protected, quarantine: Quarantine, only: Collection[str] | None, *,
        finished: bool,
    ) -> list[Moved]:  # fmt: skip
        moved: list[Moved] = []
        for path in self._offending(one, finished=finished):
            if only is not None and path not in only:
                continue
            with self._find(path, one.root) as entry:
                if entry is not None:
                    moved += self._take(one, entry, quarantine, only, finished=finished)
        return moved

    def _take(
        self, one: Protected, entry: Entry, quarantine: Quarantine, only: Collection[str] | None,
        *, finished: bool,
    ) -> list[Moved]:  # fmt: skip
        """A folder stays until the command ends that made it. If none runs here (`finished`, but
        not the last look), it may be that of a command elsewhere."""
        if entry.is_dir and entry.path == one.path and one.rule == "absent":
            if not finished or (only is not None and not self._staying.is_known(one)):
                kept_at = self._staying.stay(one, entry, quarantine)
                is_done = kept_at is not None
            else:
                kept_at = self._staying.kept_at(one)
                is_done = self._staying.is_finished(one, entry)
            if is_done:
                return [Moved(entry.path, kept_at)] if kept_at is not None else []
        return [quarantine.take(entry)]

    def _not_emptied(self, one: Protected) -> list[str]:
        """Move files from a folder that stays; what has to be moved as a whole."""
        with self._find(one.path, one.root) as entry:
            if entry is None:
                return []
            is_folder = entry.is_dir and entry.path == one.path
            return [] if is_folder and self._staying.empty(one, entry) else [entry.path]

    def _restless(self, below: Collection[tuple[Protected, str]]) -> list[str]:
        found = [one.path for one, name in below if self._staying.is_restless(one, name)]
        self._ending.update(found)
        self._unread.update(one for one, name in below if self._staying.is_hurried(one, name))
        return found


def _judged(root: int, one: Protected, planned: PlannedGit) -> JudgedFile:
    if one.rule == "top":
        return TopFolder(root, one)
    if one.rule == "git_info":
        return GitInfo(root, one)
    if one.rule == "linked":
        return LinkedFile(root, one)
    return GitDir(root, one, planned)


def _by_folder(watched: Iterable[Protected]) -> dict[str, list[list[Protected]]]:
    folders: dict[tuple[str, str], list[Protected]] = {}
    for one in watched:
        folders.setdefault((one.root, one.path.rpartition("/")[0]), []).append(one)
    found: dict[str, list[list[Protected]]] = {}
    for (root, _), members in folders.items():
        found.setdefault(root, []).append(members)
    return found


def _among(folder: int, members: list[Protected]) -> list[Protected]:
    """The members that may be in the folder: one short listing is cheaper than many lookups.

    A file system may ignore case, and of names beyond ASCII more than that.
    """
    names = list_names(folder, _MOST_LISTED) if len(members) > _FEW else None
    if names is not None and all(map(str.isascii, names)):
        there = {name.lower() for name in names}
        return [m for m in members if m.path.rpartition("/")[2].lower() in there]
    return [m for m in members if not is_gone(folder, m.path.rpartition("/")[2])]


def _link(entry: Entry) -> _Link:
    """Inode numbers are reused, so the ctime is part of the identity."""
    return entry.status.st_dev, entry.status.st_ino, entry.status.st_ctime_ns
