"""Which protected folders stay until the end of the command that made them."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial

from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard.dirfd import Entry, enter
from sandboxd.workspace_guard.quarantine import Quarantine
from sandboxd.workspace_guard.staying_folder import StayingFolder

if sys.platform == "linux":
    from sandboxd.workspace_guard.folder_events import FolderEvents
else:
    from sandboxd.workspace_guard.unwatched import FolderEvents

log = logging.getLogger(__name__)


class StayingFolders:
    """Those of one watch. One that could not be emptied does not stay again before `release`."""

    def __init__(self, events: FolderEvents) -> None:
        self._events = events
        self._folders: dict[Protected, StayingFolder | None] = {}

    def has(self, one: Protected) -> bool:
        return self._folders.get(one) is not None

    def take(
        self, one: Protected, entry: Entry, quarantine: Quarantine, *, finished: bool
    ) -> str | None:
        """Let the folder stay, or remove it in the end: where its files are kept. None: it cannot
        stay, or something is left in it."""
        if not finished and one not in self._folders:
            self._folders[one] = self._begin(one, entry, quarantine)
        folder = self._folders.get(one)
        if folder is None or (finished and not self.empty(one, entry, finished=True)):
            return None
        return folder.path

    def empty(self, one: Protected, entry: Entry, *, finished: bool = False) -> bool:
        """Move files aside; False if the folder cannot stay. For a thread."""
        folder = self._folders.get(one)
        if folder is None:
            return False
        try:
            folder.empty(entry, finished=finished)
        except OSError as error:
            log.warning("%s is moved aside as a whole: %s", one.path, error)
            self._end(one)
            return False
        return True

    def is_restless(self, one: Protected, name: str) -> bool:
        folder = self._folders.get(one)
        return folder is not None and folder.is_restless(name)

    def release(self) -> None:
        """The command has ended."""
        for one in list(self._folders):
            self._end(one)
        self._folders.clear()

    def _begin(self, one: Protected, entry: Entry, quarantine: Quarantine) -> StayingFolder | None:
        folder = enter(entry.parent, entry.name)
        if folder is None:
            return None
        try:
            self._events.watch_below(folder, one)
            kept, path = quarantine.make_folder_for(entry)
        except OSError:
            self._events.forget_below(one)
            return None
        finally:
            os.close(folder)
        return StayingFolder(kept, path, partial(self._events.watch_below, one=one))

    def _end(self, one: Protected) -> None:
        folder, self._folders[one] = self._folders.get(one), None
        self._events.forget_below(one)
        if folder is not None:
            folder.close()
