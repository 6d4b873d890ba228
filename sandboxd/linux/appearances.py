"""Which of many missing paths may have come into being: inotify on the folders above them.

A path whose folder is missing too is watched for at the nearest folder that is there, and followed
down as folders appear. One descriptor serves: it holds inotify and, when the user's inotify limits
are used up, a clock at whose ticks everything is looked at.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sandboxd.linux.descent import enter, nearest
from sandboxd.linux.inotify import (
    IN_CREATE,
    IN_DELETE_SELF,
    IN_IGNORED,
    IN_MODIFY,
    IN_MOVE_SELF,
    IN_MOVED_TO,
    IN_Q_OVERFLOW,
    Event,
    Inotify,
    Ticker,
)  # fmt: skip
from sandboxd.policy.plan import Protected

_APPEARS = IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF
_LOST = IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED


@dataclass(eq=False, slots=True)
class _Folder:
    """Paths that are missing from one folder."""

    root: str
    path: str
    members: list[Protected]


@dataclass(slots=True)
class Touched:
    """`surely`: an entry of that name was made, even if it is gone by now."""

    maybe: set[Protected] = field(default_factory=set)
    surely: set[Protected] = field(default_factory=set)


class Appearances:
    def __init__(self, watched: list[Protected], roots: Mapping[str, int]) -> None:
        self._watched = watched
        self._roots = roots
        # Whether the watched folder is the very one, or the nearest above it.
        self._by_watch: dict[int, dict[_Folder, bool]] = {}
        self._inotify: Inotify | None = None
        self._ticker: Ticker | None = None
        self._stirred = False
        self._epoll = select.epoll()
        try:
            self._start(_folders(watched))
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        for source in (self._inotify, self._ticker):
            if source is not None:
                source.close()
        self._epoll.close()

    @property
    def calm(self) -> bool:
        """Whether nothing at all has happened in the watched folders since the start."""
        return not self._stirred and self._ticker is None and not self._epoll.poll(0)

    def touched(self) -> Touched:
        """The paths to look at now. Never blocks."""
        found = Touched()
        again: set[_Folder] = set()
        for event in self._inotify.read() if self._inotify else ():
            self._stirred = True
            folders = self._by_watch.get(event.watch, {})
            if event.mask & IN_Q_OVERFLOW:
                found.maybe.update(self._watched)
                again.update(f for each in self._by_watch.values() for f in each)
            for folder, is_parent in folders.items():
                members = _concerned(folder, event)
                if members:
                    found.maybe.update(members)
                    again.add(folder)
                if is_parent and event.mask & (IN_CREATE | IN_MOVED_TO):
                    found.surely.update(m for m in members if _is_named(m, event.name))
            if event.mask & _LOST:
                self._by_watch.pop(event.watch, None)
        self._arm(again)
        if self._ticker is not None:
            self._ticker.rest()
            found.maybe.update(self._watched)
        return found

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
        probe = wanted.members[0].path
        while True:
            folder, name, is_parent = nearest(self._roots[wanted.root], wanted.root, probe)
            try:
                self._add(folder, _APPEARS, wanted, is_parent=is_parent)
                # The next folder may have come between looking and watching.
                again = not is_parent and _enters(folder, name)
                if is_parent:
                    self._arm_new_repositories(folder, wanted)
            finally:
                os.close(folder)
            if not again:
                return

    def _arm_new_repositories(self, parent: int, wanted: _Folder) -> None:
        """A repository that the command makes is judged by what is written in it."""
        for one in wanted.members:
            if one.rule != "new_repository":
                continue
            git_dir = enter(parent, os.path.basename(one.path))
            if git_dir is None:
                continue
            hooks = enter(git_dir, "hooks")
            try:
                self._add(git_dir, _APPEARS | IN_MODIFY, wanted)
                if hooks is not None:
                    self._add(hooks, _APPEARS, wanted)
            finally:
                os.close(git_dir)
                if hooks is not None:
                    os.close(hooks)

    def _add(self, folder: int, mask: int, wanted: _Folder, *, is_parent: bool = False) -> None:
        if self._inotify is not None:
            watch = self._inotify.add(folder, mask)
            self._by_watch.setdefault(watch, {})[wanted] = is_parent


def _folders(watched: Iterable[Protected]) -> list[_Folder]:
    found: dict[tuple[str, str], _Folder] = {}
    for one in watched:
        path = os.path.dirname(one.path)
        found.setdefault((one.root, path), _Folder(one.root, path, [])).members.append(one)
    return list(found.values())


def _concerned(folder: _Folder, event: Event) -> list[Protected]:
    """The members that an entry of this name may be, contain or decide about."""
    if event.mask & _LOST or event.name in folder.path.split("/"):
        return folder.members
    return [
        one for one in folder.members
        if one.rule == "new_repository" or _is_named(one, event.name)
    ]  # fmt: skip


def _is_named(one: Protected, name: str) -> bool:
    return os.path.basename(one.path) == name


def _enters(folder: int, name: str) -> bool:
    entered = enter(folder, name)
    if entered is None:
        return False
    os.close(entered)
    return True
