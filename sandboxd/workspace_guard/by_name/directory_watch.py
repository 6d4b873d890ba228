"""Protected paths on Windows: what appears is told while the command runs, and swept after it.

An event says that a name came into being; what must not be there is then looked for by
`NameSweep`. A path that was there for a moment only counts as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from sandboxd.platform.windows.paths import native
from sandboxd.policy.plan import Protected
from sandboxd.windows.access_lists.pinned_parents import pinned
from sandboxd.windows.folders.change_records import ADDED, RENAMED_NEW
from sandboxd.windows.folders.directory_changes import Changes, DirectoryChanges
from sandboxd.workspace_guard.by_name.sweep import NameSweep
from sandboxd.workspace_guard.moves import Moves
from sandboxd_proto.errors import SandboxUnavailable

assert sys.platform == "win32"


class DirectoryWatch(NameSweep):
    """One watch for each writable root. SandboxUnavailable where one cannot be watched."""

    def __init__(self, protected: Iterable[Protected]) -> None:
        listed = tuple(protected)
        self._told: Callable[[], None] | None = None
        self._maybe = False
        self._momentary: set[str] = set()
        self._watches: list[DirectoryChanges] = []
        try:
            for root in sorted({one.root for one in listed if not one.present}):
                told = partial(self._changed, root)
                self._watches.append(DirectoryChanges(native(root), told))
            super().__init__(listed, pinned)  # watching comes before looking
        except OSError as error:
            self.close()
            raise SandboxUnavailable(
                f"what appears in the workspace cannot be watched: {error.strerror or error}"
            ) from None
        self._by_case = {path.lower(): path for path in self.missing}
        self._above = {above for path in self._by_case for above in _folders_above(path)}
        self._judged = {path.lower() for path in self.folders}

    def on_change(self, told: Callable[[], None] | None) -> None:
        """`told` is called when `appeared` may have news, until None is given."""
        self._told = told
        if told is not None and self._has_news:
            told()

    def _changed(self, root: str, changes: Changes | None) -> None:
        if changes is None:
            self._maybe = True
        for action, name in changes or ():
            if action in (ADDED, RENAMED_NEW):
                self._note(f"{root}/{name}")
        if self._told is not None and self._has_news:
            self._told()

    def _note(self, path: str) -> None:
        """Windows may say a file's short name: that one may be anything."""
        lower = path.lower()
        exact = self._by_case.get(lower)
        if exact is not None:
            self._momentary.add(exact)
            return
        judged = lower.rpartition("/")[0] in self._judged
        self._maybe = self._maybe or "~" in path or judged or lower in self._above

    @property
    def _has_news(self) -> bool:
        failed = any(watch.failed is not None for watch in self._watches)
        return self._maybe or bool(self._momentary) or failed

    def appeared(self) -> list[str]:
        """OSError where the watch has ended: the guard ends the command then."""
        for watch in self._watches:
            if watch.failed is not None:
                raise watch.failed
        momentary, self._momentary = self._momentary, set()
        maybe, self._maybe = self._maybe, False
        return sorted({*momentary, *(self.there() if maybe else ())})

    def follow(self, moves: Moves) -> None:
        """Folders in use are not moved here."""

    def close(self) -> None:
        for watch in self._watches:
            watch.close()


def _folders_above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
