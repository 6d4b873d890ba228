"""Guard protected paths by their names, where files cannot be judged through descriptors.

What did not exist before the command and exists after it is moved aside when the command's tree is
dead. In a git dir every new name counts that is not one of git's daily work; what git acts upon is
judged by its content then, and put back. Paths that exist are the backend's: it denies writing
them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable

from sandboxd.platform.current import files
from sandboxd.policy.data.git_work_names import RUNS_AT_ONCE, is_info_work, is_transient, is_work
from sandboxd.policy.paths.within import within
from sandboxd.policy.plan import FOLDER_RULES, GIT_DIR_RULES, Protected
from sandboxd.workspace_guard.by_name.git_contents import Content, GitContents
from sandboxd.workspace_guard.by_name.quarantine import PathQuarantine, Pin, unpinned
from sandboxd.workspace_guard.by_name.swept_path import SweptPath
from sandboxd_proto.locations import KEPT_FOLDER

_ASIDE = re.compile(r"\.sandboxd-[0-9a-f]{8}$")  # no program looks for such a name
_PARTS = ("head", "commondir", "objects", "refs")  # what makes a folder a git dir


class NameSweep:
    """Every path that was missing at the start is looked at after the run."""

    large = needs_thread = unread = calm = False
    read_all = True

    def __init__(self, protected: Iterable[Protected], pin: Pin = unpinned) -> None:
        watched = [one for one in protected if not one.present]
        self.missing = [
            one.path
            for one in watched
            if one.rule not in FOLDER_RULES and not files.lexists(one.path)
        ]
        folders = [one for one in watched if one.rule in FOLDER_RULES]
        self.folders = {one.path: one.rule for one in folders}
        self.roots = sorted({one.root for one in watched}, key=len, reverse=True)
        self._kept = {root: PathQuarantine(files.native(root), pin) for root in self.roots}
        known = frozenset(one.path for one in folders if one.rule in GIT_DIR_RULES)
        self._contents = [GitContents(path, known) for path in sorted(known)]
        self._names = {path: frozenset(_listed(path)) for path in self.folders}

    def fileno(self) -> int:
        return -1

    def on_change(self, told: Callable[[], None] | None) -> None:
        """Nothing is told while the command runs."""

    def begin(self) -> None:
        """Nothing is compared with other commands."""

    def rest(self) -> None:
        """As `begin`."""

    def prepare(self) -> list[str]:
        return []

    def appeared(self) -> list[str]:
        return []

    def judge_unread(self) -> list[str]:
        return []

    def judge_all(self) -> list[str]:
        return self.there()

    def judge_changed(self, *, finished: bool) -> list[str]:
        """Contents are judged by the sweep."""
        return []

    def ends_command(self, path: str) -> bool:
        """Whether git on the host may run it at once."""
        return posixpath.basename(path).lower() in RUNS_AT_ONCE

    def there(self) -> list[str]:
        """What must not be there, and is."""
        found = [path for path in self.missing if files.lexists(path)]
        for path, rule in self.folders.items():
            found += [posixpath.join(path, name) for name in self._new(path, rule)]
        return list(dict.fromkeys(found))

    def _new(self, folder: str, rule: str) -> list[str]:
        before, now = self._names[folder], _listed(folder)
        fresh = [name for name in now if name not in before and not _is_kept(name)]
        if rule in GIT_DIR_RULES:
            return [name for name in fresh if not is_work(name) and not is_transient(name)]
        if rule == "git_info":
            return [name for name in fresh if not is_info_work(name)]
        # The top folder: it may have such names, but must not become a git dir.
        lower = {name.lower() for name in now}
        is_git_dir = "head" in lower and ("commondir" in lower or {"objects", "refs"} <= lower)
        return [name for name in fresh if name.lower() in _PARTS][:1] if is_git_dir else []

    def sweep(self) -> list[SweptPath]:
        moved = [self._taken(path) for path in self.there()]
        for contents in self._contents:
            moved += [self._put_back(path, before) for path, before in contents.offences()]
        return moved

    def _put_back(self, path: str, before: Content | None) -> SweptPath:
        if before is None:
            return self._taken(path)
        root, parts = self._split(path)
        try:
            to = self._kept[root].put_back(parts, before)
        except OSError as error:
            return SweptPath(path, None, error.strerror or str(error))
        return SweptPath(path, "/".join((root, *to)) if to is not None else None)

    def _split(self, path: str) -> tuple[str, list[str]]:
        root = next(root for root in self.roots if within(path, root))
        return root, path[len(root) + 1 :].split("/")

    def _taken(self, path: str) -> SweptPath:
        """The others are moved, too, where one cannot be."""
        try:
            return self._set_aside(path)
        except OSError as error:
            return SweptPath(path, None, error.strerror or str(error))

    def sweep_only(self, paths: Collection[str], *, finished: bool = False) -> list[SweptPath]:
        return [self._set_aside(path) for path in self.there() if path in paths]

    def _set_aside(self, path: str) -> SweptPath:
        """Moved into the kept folder of its root. OSError fails closed."""
        root, parts = self._split(path)
        try:
            moved, to = self._kept[root].take(parts)
        except FileNotFoundError:
            return SweptPath(path, None)
        return SweptPath("/".join((root, *moved)), "/".join((root, *to)))

    def settle(self) -> None:
        """Nothing is remembered between two sweeps."""

    def close(self) -> None:
        """Nothing is held."""


def _is_kept(name: str) -> bool:
    return name.startswith(KEPT_FOLDER) or _ASIDE.search(name) is not None


def _listed(folder: str) -> list[str]:
    try:
        with files.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
