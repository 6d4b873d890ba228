"""Watches for protected paths that do not exist yet, and moves aside what appeared.

A placeholder would show on the host and stay there after a crash; so nothing is created. Between
an appearance and the freeze of the sandbox lies the time of one event: the sweep afterwards is what
holds, the watch makes it prompt.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from types import TracebackType

from sandboxd.linux import git_state
from sandboxd.linux.appearances import Appearances
from sandboxd.linux.descent import Spot, enter, find, nearest, open_root
from sandboxd.linux.openat import changed
from sandboxd.linux.quarantine import Moved, Quarantine
from sandboxd.policy.plan import Protected

_Link = tuple[int, int, int]


class WorkspaceWatch:
    """One run's watch. Make it before the command starts; PathDenied: the plan is out of date.

    Wait until `fileno()` is readable, then ask `appeared()`. When nothing of the sandbox is alive
    any more, `sweep()`; then `close()`. All calls are short and for one thread.
    """

    def __init__(self, protected: Sequence[Protected]) -> None:
        self._watched = [p for p in protected if not p.present]
        self._open = contextlib.ExitStack()
        self._roots: dict[str, int] = {}
        self._folders = _by_folder(self._watched)
        self._links: dict[str, _Link] = {}
        self._exec_lines: dict[str, git_state.ExecLines] = {}
        self._reported: set[str] = set()
        try:
            for root in self._folders:
                self._roots[root] = open_root(root)
                self._open.callback(os.close, self._roots[root])
            # Watching comes before looking: what appears in between is an event.
            self._appearances = Appearances(self._watched, self._roots)
            self._open.callback(self._appearances.close)
            for root in self._roots:
                for one in self._there(root):
                    self._note(one)
        except BaseException:
            self._open.close()
            raise

    def __enter__(self) -> WorkspaceWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def fileno(self) -> int:
        return self._appearances.fileno()

    @property
    def calm(self) -> bool:
        """Whether it is certain that nothing has appeared since this watch was made.

        Not with a rebase under way: its files are there, and may be changed where they are.
        """
        return not self._exec_lines and self._appearances.calm

    def appeared(self) -> list[str]:
        """Protected paths that came into being since the last call. Never blocks."""
        touched = self._appearances.touched()
        # What was there for a moment only may have been used in that moment.
        found = [one.path for one in touched.surely if one.rule == "absent"]
        for one in touched.maybe:
            found += self._offending(one, finished=False)
        fresh = sorted(set(found) - self._reported)
        self._reported.update(fresh)
        return fresh

    def sweep(self) -> list[Moved]:
        """Move aside every forbidden path that is there now. For when the whole tree is dead."""
        moved: list[Moved] = []
        for root, fd in self._roots.items():
            quarantine = Quarantine(fd, root)
            try:
                for one in self._there(root):
                    moved += self._moved(one, quarantine)
            finally:
                quarantine.close()
        return moved

    def close(self) -> None:
        self._open.close()

    def _there(self, root: str) -> list[Protected]:
        """Those that are there, or have a symlink in the way. Most are missing from one folder."""
        found: list[Protected] = []
        for members in self._folders[root]:
            folder, name, is_parent = nearest(self._roots[root], root, members[0].path)
            try:
                if is_parent:
                    found += [m for m in members if _is_there(folder, os.path.basename(m.path))]
                elif _is_there(folder, name):
                    found.append(members[0])
            finally:
                os.close(folder)
        return found

    def _note(self, one: Protected) -> None:
        with self._find(one.path, one.root) as spot:
            if one.rule == "unfinished_rebase":
                self._exec_lines[one.path] = _exec_lines(spot)
            elif spot is not None:
                if not spot.is_link or spot.path != one.path or one.rule != "absent":
                    raise changed(one.path, "it did not exist")
                self._links[one.path] = _link(spot)

    def _find(self, path: str, root: str) -> contextlib.AbstractContextManager[Spot | None]:
        return find(self._roots[root], root, path)

    def _offending(self, one: Protected, *, finished: bool) -> list[str]:
        if one.rule == "unfinished_rebase" and not finished:
            return []
        with self._find(one.path, one.root) as spot:
            if spot is None or self._is_permitted(one, spot):
                return []
            if one.rule != "new_repository" or not spot.is_dir:
                return [spot.path]
            git_dir = enter(spot.parent, spot.name)
            if git_dir is None:
                return [spot.path]
            try:
                doors = git_state.open_doors(git_dir, finished=finished)
            finally:
                os.close(git_dir)
            return [os.path.join(spot.path, name) for name in doors]

    def _is_permitted(self, one: Protected, spot: Spot) -> bool:
        if spot.path != one.path:
            return False  # a symlink in the place of a folder above
        if one.rule == "unfinished_rebase":
            before = self._exec_lines.get(one.path, Counter())
            return not git_state.rebase_runs_code(spot.parent, spot.name, before)
        return self._links.get(one.path) == _link(spot)

    def _moved(self, one: Protected, quarantine: Quarantine) -> list[Moved]:
        moved: list[Moved] = []
        for path in self._offending(one, finished=True):
            with self._find(path, one.root) as spot:
                if spot is not None:
                    moved.append(quarantine.take(spot))
        return moved


def _by_folder(watched: Iterable[Protected]) -> dict[str, list[list[Protected]]]:
    folders: dict[tuple[str, str], list[Protected]] = {}
    for one in watched:
        folders.setdefault((one.root, os.path.dirname(one.path)), []).append(one)
    found: dict[str, list[list[Protected]]] = {}
    for (root, _), members in folders.items():
        found.setdefault(root, []).append(members)
    return found


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # to be looked at more closely
    return True


def _link(spot: Spot) -> _Link:
    """Inode numbers are used again; the time of the last change is not ours to set back."""
    return spot.status.st_dev, spot.status.st_ino, spot.status.st_ctime_ns


def _exec_lines(spot: Spot | None) -> git_state.ExecLines:
    folder = enter(spot.parent, spot.name) if spot is not None else None
    if folder is None:
        return Counter()
    try:
        return git_state.exec_lines(folder) or Counter()
    finally:
        os.close(folder)
