"""Which protected folders stay until the end of the commands that run beside them.

One folder serves all watches of the daemon: with one place each for what they move, files of one
folder would be scattered, and the first command to end would take the folder from the others.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from sandboxd.policy.plan import Protected
from sandboxd.policy.protected import staying
from sandboxd.workspace_guard.dirfd import Entry, enter
from sandboxd.workspace_guard.quarantine.quarantine import Quarantine
from sandboxd.workspace_guard.watch.staying_folder import StayingFolder

if sys.platform == "linux":
    from sandboxd.workspace_guard.watch.folder_events import FolderEvents
else:
    from sandboxd.workspace_guard.watch.no_folder_events import FolderEvents

log = logging.getLogger(__name__)
_MOST_TIMES = 64  # a rebase writes a file anew with each commit
_MOST_NAMES = 65_536
_JOINED_S = 0.25  # until then the watch of the command that made a folder has joined
_MOST_GRACES = 16  # then a file that appears again and again is moved at once


@dataclass(slots=True)
class _Shared:
    """`lock`: for what is moved. The event loop does not wait for it."""

    folder: StayingFolder
    watches: int = 0
    since: float = field(default_factory=time.monotonic)
    lock: threading.RLock = field(default_factory=threading.RLock)


_by_path: dict[str, _Shared] = {}
_lock = threading.RLock()  # for the dict and the count of watches


class StayingFolders:
    """Those of one watch. One that could not be emptied does not stay again before `release`."""

    def __init__(self, events: FolderEvents) -> None:
        self._events = events
        self._folders: dict[Protected, _Shared | None] = {}
        self._times: Counter[tuple[Protected, str]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._folders)

    def has(self, one: Protected) -> bool:
        return self._folders.get(one) is not None

    def is_known(self, one: Protected) -> bool:
        """Whether it stays, or could not."""
        return one in self._folders

    def join(self, one: Protected, entry: Entry) -> bool:
        """Whether the folder is one that commands which run already have made."""
        with _lock:
            shared = _by_path.get(one.path)
            if shared is not None and self._is_watched(one, entry):
                self._add(one, shared)
            return self.has(one)

    def stay(self, one: Protected, entry: Entry, quarantine: Quarantine) -> str | None:
        """Let the folder stay: where its files are kept. None: it cannot."""
        with _lock:
            if one not in self._folders:
                self._folders[one] = None
                if self._is_watched(one, entry):
                    self._begin(one, entry, quarantine)
            self._times[one, "."] += 1
            return self.kept_at(one)

    def empty(self, one: Protected, entry: Entry) -> bool:
        """Move files aside; False if the folder cannot stay. For a thread."""
        shared = self._folders.get(one)
        return shared is not None and self._emptied(one, entry, shared)

    def is_finished(self, one: Protected, entry: Entry) -> bool:
        """No command runs here any more: move all files aside, and remove the folder if it stays
        for no other command. False: something is left. For a thread."""
        shared = _by_path.get(one.path)
        if shared is None or self._folders.get(one, shared) is None:
            return False
        with shared.lock:  # of two that end at the same time one is the last
            ends = self.has(one)
            last = ends and shared.watches == 1
            is_done = self._emptied(one, entry, shared, finished=ends, remove=last)
            if ends:
                self._leave(one)
            if is_done:
                self._folders.pop(one, None)
            return is_done

    def kept_at(self, one: Protected) -> str | None:
        """Where the files are, if this watch saw any."""
        shared = self._folders.get(one)
        return shared.folder.path if shared is not None and self._is_ours(one) else None

    def is_restless(self, one: Protected, name: str) -> bool:
        """Note that an entry appeared; whether that happened too often."""
        if not self.has(one):
            return False
        self._times[one, name] += 1
        return self._times[one, name] > _MOST_TIMES or len(self._times) > _MOST_NAMES

    def is_hurried(self, one: Protected, name: str) -> bool:
        """Whether what appears there is moved without delay."""
        return self._times[one, name] > _MOST_GRACES

    def overdue(self) -> list[Protected]:
        """When no command runs here: those that no command has joined meanwhile. Those of commands
        elsewhere are left to these."""
        found: list[Protected] = []
        for one, shared in list(self._folders.items()):
            if shared is not None and (shared.watches > 1 or not self._is_ours(one)):
                self._leave(one)
                del self._folders[one]
            elif shared is not None and time.monotonic() - shared.since >= _JOINED_S:
                found.append(one)
        return found

    def release(self) -> None:
        """The command has ended."""
        for one in list(self._folders):
            self._leave(one)
        self._folders.clear()
        self._times.clear()

    def _is_ours(self, one: Protected) -> bool:
        return any(path == one for path, _ in list(self._times))

    def _begin(self, one: Protected, entry: Entry, quarantine: Quarantine) -> None:
        try:
            if one.path not in _by_path:
                folder = StayingFolder(*quarantine.make_folder_for(entry))
                _by_path[one.path] = _Shared(folder)
                staying.add(one.path)
            self._add(one, _by_path[one.path])
        except OSError:
            self._events.forget_below(one)

    def _is_watched(self, one: Protected, entry: Entry) -> bool:
        folder = enter(entry.parent, entry.name)
        if folder is None:
            return False
        try:
            self._events.watch_below(folder, one)
            return True
        except OSError:
            self._events.forget_below(one)
            return False
        finally:
            os.close(folder)

    def _add(self, one: Protected, shared: _Shared) -> None:
        shared.watches += 1
        self._folders[one] = shared

    def _emptied(
        self, one: Protected, entry: Entry, shared: _Shared, *,
        finished: bool = False, remove: bool = False,
    ) -> bool:  # fmt: skip
        is_joined = self.has(one)

        def watch(opened: int) -> Callable[[str], bool]:
            number = self._events.watch_below(opened, one) if is_joined else 0
            return lambda name: self.is_hurried(one, f"{number}/{name}")

        try:
            with shared.lock:
                if _by_path.get(one.path) is not shared:
                    return False
                shared.folder.empty(entry, watch, finished=finished, remove=remove)
        except OSError as error:
            log.warning("%s is moved aside as a whole: %s", one.path, error)
            self._leave(one)
            return False
        return True

    def _leave(self, one: Protected) -> None:
        shared, self._folders[one] = self._folders.get(one), None
        self._events.forget_below(one)
        if shared is None:
            return
        with _lock:
            shared.watches -= 1
            is_unused = shared.watches == 0
            if is_unused:
                del _by_path[one.path]
                staying.discard(one.path)
        if is_unused:
            with shared.lock:
                shared.folder.close()
