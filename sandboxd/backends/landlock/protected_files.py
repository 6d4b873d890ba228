"""Record protected files before a command, and restore them after it, where no mount covers them.

A command that goes on for longer, and what it leaves running, is watched: a change is undone at
once, and ends what runs if git could run code because of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import anyio

from sandboxd import event_loop
from sandboxd.policy.data.git_work_names import RUNS_AT_ONCE
from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard.protected_snapshot import ProtectedSnapshot
from sandboxd.workspace_guard.watch.existing_files import ExistingFilesWatch

log = logging.getLogger(__name__)
WATCH_AFTER_S = 0.5  # most commands are over by then, and a watch costs as much as one
MOST_TIMES = 16  # that a change is undone while the command goes on
Undone = tuple[tuple[str, str | None], ...]
_running: list[ProtectedFiles] = []  # in the order of their starts


class ProtectedFiles:
    """Keeps the protected files of one sandbox while commands of it run.

    Noted when the first command starts, not when the sandbox is made: what the user changes while
    nothing runs is theirs.
    """

    def __init__(self, protected: tuple[Protected, ...], writable: tuple[str, ...] = ()) -> None:
        self._protected = protected
        self._writable = writable
        self._noted: ProtectedSnapshot | None = None
        self._running = 0
        self._watch: ExistingFilesWatch | None = None
        self._timer: event_loop.Timer | None = None
        self._lock = threading.Lock()
        self._undone: list[tuple[str, str | None]] = []
        self._times = 0
        self._kills: list[Callable[[], None]] = []
        self.violated = False  # nothing may run here any more

    def begin(self) -> None:
        if self._noted is None and self._protected:
            elders = [one._noted for one in _running if one._noted is not None]
            self._noted = ProtectedSnapshot(self._protected, self._writable, elders)
            _running.append(self)
            for path in self._noted.unverified:
                log.warning("%s is too large to be checked after the command", path)
            self._timer = event_loop.call_later(WATCH_AFTER_S, self.watch)
        self._running += 1

    def watch(self) -> None:
        """Undo changes from now on, as soon as they are made."""
        if self._noted is not None and self._watch is None:
            self._watch = ExistingFilesWatch(self._protected, self._put_right_now, self._end_all)

    def started(self, kill: Callable[[], None]) -> None:
        self._kills.append(kill)

    def ended(self, kill: Callable[[], None]) -> None:
        if kill in self._kills:
            self._kills.remove(kill)

    def _put_right_now(self) -> bool:
        """For a thread: whether something had been changed."""
        with self._lock:
            undone = self._verified()
            self._undone += undone
        if undone:
            self._times += 1
            at_once = any(RUNS_AT_ONCE.intersection(path.split("/")) for path, _ in undone)
            if at_once or self._times > MOST_TIMES:
                raise RuntimeError("a command changed what could run on the host")
        return bool(undone)

    def _end_all(self) -> None:
        self.violated = True
        for kill in self._kills:
            kill()

    async def put_right(self) -> Undone:
        """What had been changed: (path, where the changed version is now)."""
        if self._noted is None:
            return ()
        if self._watch is not None or self._noted.needs_thread:
            return await anyio.to_thread.run_sync(self._put_right)
        return self._put_right()

    def _put_right(self) -> Undone:
        with self._lock:
            undone, self._undone = tuple(self._undone), []
            return undone + self._verified()

    def _verified(self) -> Undone:
        changed = self._noted.verify() if self._noted is not None else []
        for one in changed:
            log.warning("a command changed %s, which is protected", one.path)
        return tuple((one.path, one.moved_to) for one in changed)

    def end(self, *, all_gone: bool) -> None:
        """Called for each `begin`. Without `all_gone` something may still run."""
        self._running -= 1
        if self._running == 0 and all_gone:
            self.close()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self in _running:
            _running.remove(self)
        if self._noted is not None:
            self._put_right()
            with self._lock:
                self._noted.close()
                self._noted = None
