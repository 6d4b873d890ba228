"""Protected paths by their names alone, where files cannot be judged through descriptors.

What did not exist before the command and exists after it is moved aside when the command's tree is
dead. In a git dir every new name counts that is not one of git's daily work. Paths that exist are
the backend's: it denies writing them.
"""

from __future__ import annotations

import os
import posixpath
import re
import secrets
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from sandboxd.platform.current import files
from sandboxd.policy.data.git_work_names import RUNS_AT_ONCE, is_info_work, is_transient, is_work
from sandboxd.policy.paths.within import within
from sandboxd.policy.plan import FOLDER_RULES, GIT_DIR_RULES, Protected

_ASIDE = re.compile(r"\.sandboxd-[0-9a-f]{8}$")  # no program looks for such a name
_PARTS = ("head", "commondir", "objects", "refs")  # what makes a folder a git dir


@dataclass(frozen=True, slots=True)
class Swept:
    path: str
    moved_to: str | None
    error: str = ""


class SweepOnly:
    """Every path that was missing at the start is looked at after the run."""

    large = heavy = unread = calm = False
    read_all = True

    def __init__(self, protected: Iterable[Protected]) -> None:
        watched = [one for one in protected if not one.present]
        self.missing = [
            one.path
            for one in watched
            if one.rule not in FOLDER_RULES and not files.lexists(one.path)
        ]
        folders = [one for one in watched if one.rule in FOLDER_RULES]
        self.folders = {one.path: one.rule for one in folders}
        self.roots = sorted({one.root for one in watched}, key=len, reverse=True)
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
        """Nothing is judged by its content."""
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
        fresh = [name for name in now if name not in before and not _ASIDE.search(name)]
        if rule in GIT_DIR_RULES:
            return [name for name in fresh if not is_work(name) and not is_transient(name)]
        if rule == "git_info":
            return [name for name in fresh if not is_info_work(name)]
        # The top folder: it may have such names, but must not become a git dir.
        lower = {name.lower() for name in now}
        is_git_dir = "head" in lower and ("commondir" in lower or {"objects", "refs"} <= lower)
        return [name for name in fresh if name.lower() in _PARTS][:1] if is_git_dir else []

    def sweep(self) -> list[Swept]:
        return [self._taken(path) for path in self.there()]

    def _taken(self, path: str) -> Swept:
        """The others are moved, too, where one cannot be."""
        try:
            return Swept(path, self._set_aside(path))
        except OSError as error:
            return Swept(path, None, error.strerror or str(error))

    def sweep_only(self, paths: Collection[str], *, finished: bool = False) -> list[Swept]:
        return [Swept(path, self._set_aside(path)) for path in self.there() if path in paths]

    def _set_aside(self, path: str) -> str | None:
        """Renamed in its folder: no program looks for it under that name. None: it is gone.

        OSError fails closed.
        """
        root = next(root for root in self.roots if within(path, root))
        suffix = f".sandboxd-{secrets.token_hex(4)}"
        try:
            return f"{self._renamed(root, path, suffix)}{suffix}"
        except FileNotFoundError:
            return None

    def _renamed(self, root: str, path: str, suffix: str) -> str:
        """What was renamed: the path, or a link in the place of a folder above it."""
        os.rename(files.native(path), files.native(path + suffix))
        return path

    def settle(self) -> None:
        """Nothing is remembered between two sweeps."""

    def close(self) -> None:
        """Nothing is held."""


def _listed(folder: str) -> list[str]:
    try:
        with files.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
