"""Which of many missing paths may have been created: inotify on the folders above them.

If a path's folder is missing too, the nearest existing folder is watched, and then each folder that
appears below. One epoll descriptor holds inotify and, when the user's inotify limits are used up, a
timer at which everything is checked.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from sandboxd.linux.inotify import (
    IN_ATTRIB,
    IN_CLOSE_WRITE,
    IN_CREATE,
    IN_DELETE,
    IN_DELETE_SELF,
    IN_IGNORED,
    IN_MODIFY,
    IN_MOVE_SELF,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    IN_Q_OVERFLOW,
    Inotify,
    InotifyEvent,
    Ticker,
)  # fmt: skip
from sandboxd.policy.data import git_work_names
from sandboxd.policy.data.protected_names import REBASE_STATE
from sandboxd.policy.plan import FOLDER_RULES, GIT_DIR_RULES, Protected
from sandboxd.workspace_guard.dirfd import enter, nearest
from sandboxd.workspace_guard.git.head import open_branches
from sandboxd.workspace_guard.git.links import log_folders

assert sys.platform == "linux"

_APPEARS = IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF
_CHANGES = _APPEARS | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_DELETE | IN_ATTRIB
_BACKLOG_BYTES = 64 << 10
_MOST_LOG_FOLDERS = 32
_LOOK_NS = 25_000_000
_LOST = IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED


@dataclass(eq=False, slots=True)
class _Folder:
    """A folder that matters, and what is watched for in it: entries, by their names in lower case,
    and what is judged by its content."""

    root: str
    path: str
    members: list[Protected]
    named: dict[str, list[Protected]]
    judged: list[Protected]
    mask: int = _APPEARS


class _At(Enum):
    """Where a watched folder is in relation to the one that matters."""

    ABOVE = auto()  # the nearest existing folder above it
    SAME = auto()
    INSIDE = auto()
    BELOW = auto()  # in a protected folder that stays


@dataclass(slots=True)
class Touched:
    """`surely`: an entry of that name was made, even if it was removed since. `below`: the same
    in a protected folder that stays, with the number of its folder; "" if events were lost."""

    maybe: set[Protected] = field(default_factory=set)
    surely: set[Protected] = field(default_factory=set)
    below: list[tuple[Protected, str]] = field(default_factory=list)


class FolderEvents:
    def __init__(self, watched: list[Protected], roots: Mapping[str, int]) -> None:
        self._watched = watched
        self._roots = roots
        self._by_watch: dict[int, dict[_Folder, _At]] = {}
        self._inotify: Inotify | None = None
        self._ticker: Ticker | None = None
        self._below: dict[Protected, _Folder] = {}
        self._looks: Ticker | None = None
        self._stirred = False
        self._unwatched = False
        self._epoll = select.epoll()
        try:
            self._start(_folders(watched))
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        for source in (self._inotify, self._ticker, self._looks):
            if source is not None:
                source.close()
        self._epoll.close()

    @property
    def calm(self) -> bool:
        """Whether nothing at all has happened in the watched folders since the start."""
        quiet = not self._stirred and not self._unwatched and self._ticker is None
        return quiet and not self._epoll.poll(0)

    def settle(self) -> None:
        self._stirred = False

    @property
    def read_all(self) -> bool:
        return self._inotify is None or not self._inotify.backlog()

    @property
    def backlog(self) -> bool:
        """Whether more is waiting than one call of `touched` should read."""
        return self._inotify is not None and self._inotify.backlog() > _BACKLOG_BYTES

    def touched(self) -> Touched:
        """The paths to check now, for some of the queued events. Never blocks."""
        found = Touched()
        again: set[_Folder] = set()
        for event in self._inotify.read() if self._inotify else ():
            if event.mask & IN_Q_OVERFLOW:
                self._stirred = True
                found.maybe.update(self._watched)
                again.update(
                    folder
                    for each in self._by_watch.values()
                    for folder, at in each.items() if at is not _At.BELOW
                )  # fmt: skip
                found.below += [(one, "") for one in list(self._below)]
            for folder, at in self._by_watch.get(event.watch, {}).items():
                if at is _At.BELOW:
                    found.below += [(one, f"{event.watch}/{event.name}") for one in folder.members]
                    continue
                members = _concerned(folder, at, event)
                if members:
                    self._stirred = True
                    found.maybe.update(members)
                    again.add(folder)
                if at is _At.SAME and event.mask & (IN_CREATE | IN_MOVED_TO):
                    found.surely.update(m for m in members if _is_named(m, event.name))
            if event.mask & _LOST:
                self._by_watch.pop(event.watch, None)
        self._arm(again)
        if self._ticker is not None:
            self._ticker.rest()
            found.maybe.update(self._watched)
        if self._looks is not None and self._looks.rest():
            found.maybe.update(list(self._below))
        return found

    def watch_below(self, folder: int, one: Protected) -> int:
        """Tell what appears in this folder, and look again and again. OSError if that fails.

        Returns the number by which `Touched.below` names the folder.
        """
        if one not in self._below:
            self._below[one] = _Folder(one.root, one.path, [one], {}, [])
            self._start_looks()
        number = self._add(folder, IN_CREATE | IN_MOVED_TO, self._below[one], _At.BELOW)
        if number is None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return number

    def _start_looks(self) -> None:
        if self._looks is None:
            self._looks = Ticker(_LOOK_NS)
            self._epoll.register(self._looks.fileno(), select.EPOLLIN)
        else:
            self._looks.set(_LOOK_NS)

    def forget_below(self, one: Protected) -> None:
        self._below.pop(one, None)
        if self._looks is not None and not self._below:
            self._looks.set(0)

    def _start(self, folders: list[_Folder]) -> None:
        try:
            self._inotify = Inotify()
        except OSError:
            self._tick()
            return
        self._epoll.register(self._inotify.fileno(), select.EPOLLIN)
        self._arm(folders)

    def _tick(self) -> None:
        if self._ticker is None:
            self._ticker = Ticker()
            self._epoll.register(self._ticker.fileno(), select.EPOLLIN)

    def _arm(self, folders: Iterable[_Folder]) -> None:
        for folder in folders:
            try:
                self._arm_one(folder)
            except OSError:
                self._tick()

    def _arm_one(self, wanted: _Folder) -> None:
        probe = f"{wanted.path}/*"
        while True:
            folder, name, is_parent = nearest(self._roots[wanted.root], wanted.root, probe)
            try:
                at = _At.SAME if is_parent else _At.ABOVE
                self._add(folder, wanted.mask if is_parent else _APPEARS, wanted, at)
                # The next folder may have been made between the lookup and the watch.
                again = not is_parent and _enters(folder, name)
                if is_parent:
                    self._arm_new_repositories(folder, wanted)
                    self._arm_operations(folder, wanted)
            finally:
                os.close(folder)
            if not again:
                return

    def _arm_new_repositories(self, parent: int, wanted: _Folder) -> None:
        """Watch repositories that the command makes: they are judged by their content."""
        for one in wanted.members:
            if one.rule == "new_repository":
                name = os.path.basename(one.path)
                self._arm_inside(parent, name, wanted, _APPEARS | IN_MODIFY, "hooks")

    def _arm_operations(self, git_dir: int, wanted: _Folder) -> None:
        """Watch the state of an unfinished operation and HEAD's branch, which are written in
        place."""
        if any(one.rule in GIT_DIR_RULES for one in wanted.members):
            for name in REBASE_STATE:
                self._arm_inside(git_dir, name, wanted, _CHANGES)
            self._arm_logs(git_dir, wanted)
            branches = open_branches(git_dir, wanted.path)
            if branches is not None:
                try:
                    self._add(branches, _CHANGES, wanted, _At.INSIDE)
                finally:
                    os.close(branches)

    def _arm_logs(self, git_dir: int, wanted: _Folder) -> None:
        """Watch for links in `logs`. Folders beyond the limit are checked after the command."""
        folders = log_folders(git_dir, _MOST_LOG_FOLDERS)
        self._unwatched = self._unwatched or folders is None
        for folder in folders or ():
            try:
                self._add(folder, _APPEARS, wanted, _At.INSIDE)
            finally:
                os.close(folder)

    def _arm_inside(
        self, parent: int, name: str, wanted: _Folder, mask: int, below: str | None = None
    ) -> None:
        folder = enter(parent, name)
        if folder is None:
            return
        try:
            self._add(folder, mask, wanted, _At.INSIDE)
            if below is not None:
                self._arm_inside(folder, below, wanted, _APPEARS)
        finally:
            os.close(folder)

    def _add(self, folder: int, mask: int, wanted: _Folder, at: _At) -> int | None:
        if self._inotify is None:
            return None
        watch = self._inotify.add(folder, mask)
        self._by_watch.setdefault(watch, {})[wanted] = at
        return watch


def _folders(watched: Iterable[Protected]) -> list[_Folder]:
    found: dict[tuple[str, str], _Folder] = {}
    for one in watched:
        is_folder = one.rule in FOLDER_RULES
        parent, _, name = one.path.rpartition("/")
        path = one.path if is_folder else parent
        folder = found.get((one.root, path))
        if folder is None:
            folder = found[one.root, path] = _Folder(one.root, path, [], {}, [])
        folder.members.append(one)
        if is_folder:
            folder.mask = _CHANGES
            folder.judged.append(one)
        else:
            folder.named.setdefault(name.lower(), []).append(one)
    return list(found.values())


def _concerned(folder: _Folder, at: _At, event: InotifyEvent) -> list[Protected]:
    """The members that an entry of this name may be, contain or affect."""
    if event.mask & _LOST:
        return folder.members
    if at is _At.INSIDE:
        return [m for m in folder.members if m.rule in _INSIDE]
    if at is _At.ABOVE:
        return folder.members if event.name in folder.path.split("/") else []
    appears = bool(event.mask & (IN_CREATE | IN_MOVED_TO))
    found = [one for one in folder.judged if _matters(one, event.name, appears=appears)]
    return found + _spelled(folder, event.name) if appears else found


def _spelled(folder: _Folder, name: str) -> list[Protected]:
    """Those that a file system which ignores case may find under `name`. Beyond ASCII what counts
    as the same differs, down to characters that do not count at all."""
    if not name.isascii():
        return [one for one in folder.members if one.rule not in FOLDER_RULES]
    return folder.named.get(name.lower(), [])


def _matters(one: Protected, name: str, *, appears: bool) -> bool:
    """Names that are not known count: so do other spellings of known ones."""
    if one.rule in GIT_DIR_RULES:
        if git_work_names.is_transient(name):
            return False
        return appears or name in _JUDGED or not git_work_names.is_work(name)
    if one.rule == "git_info":
        return not git_work_names.is_info_work(name)
    return not name.isascii() or name.lower() in _TOP


_INSIDE = GIT_DIR_RULES | {"new_repository"}
_TOP = frozenset(("", "head", "objects", "refs", "commondir"))
_JUDGED = frozenset(
    ("", "HEAD", "index", "objects", "refs", *REBASE_STATE, "MERGE_HEAD", "CHERRY_PICK_HEAD",
     "REVERT_HEAD", "REBASE_HEAD", "ORIG_HEAD", "AUTO_MERGE", "BISECT_HEAD", "BISECT_EXPECTED_REV",
     "MERGE_AUTOSTASH", "MERGE_RR", "BISECT_START", "BISECT_TERMS", "BISECT_NAMES",
     "NOTES_MERGE_REF", "NOTES_MERGE_PARTIAL")
)  # fmt: skip


def _is_named(one: Protected, name: str) -> bool:
    return (
        one.path.endswith(name)
        and one.path.rpartition("/")[2] == name
        and one.rule not in FOLDER_RULES
    )


def _enters(folder: int, name: str) -> bool:
    entered = enter(folder, name)
    if entered is None:
        return False
    os.close(entered)
    return True
