"""Watches existing protected files for changes, where they cannot be mounted read-only.

A watch covers the folders that the files are in, and a bounded number of folders below; without
inotify, or above that number, a timer is used. inotify misses writes through another hard link and
through a mapping, so the files are also polled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator

from sandboxd import event_loop
from sandboxd.linux import inotify
from sandboxd.linux.inotify import Inotify, Ticker
from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard.dirfd import enter, list_names, open_root
from sandboxd.workspace_guard.polling import pause_after

log = logging.getLogger(__name__)
_CHANGES = (
    inotify.IN_CLOSE_WRITE | inotify.IN_MOVED_TO | inotify.IN_MOVED_FROM | inotify.IN_CREATE
    | inotify.IN_DELETE | inotify.IN_ATTRIB | inotify.IN_MODIFY
)  # fmt: skip
_MOST_FOLDERS = 128
_MOST_ENTRIES = 4096
_MOST_ROUNDS = 5
_PAUSE_S = 0.02  # many changes are checked this often


class ExistingFilesWatch:
    """Until `close`, `check` is called in a thread when something may have changed.

    It returns whether it restored something: those files are then watched again.
    `failed` is called on the event loop when it raises, or finds changes again and again.
    """

    def __init__(
        self, protected: Iterable[Protected], check: Callable[[], bool], failed: Callable[[], None]
    ) -> None:
        self._protected = tuple(protected)
        self._check = check
        self._failed = failed
        self._names = {os.path.basename(one.path) for one in self._protected}
        self._inside: set[int] = set()
        self._later: event_loop.Timer | None = None
        self._clock: event_loop.Timer | None = None
        self._began = 0.0
        self._checking: event_loop.Future[None] | None = None
        self._closed = False
        self._source: Inotify | Ticker
        try:
            self._source = Inotify()
        except OSError:
            self._source = Ticker()
        event_loop.add_reader(self._source.fileno(), self._read)
        self._start_check()  # changes before this moment count too

    def close(self) -> None:
        """Closes in a thread: the kernel takes a while to close an inotify instance."""
        self._closed = True
        self._stop_timers()
        if self._checking is None:  # otherwise nothing is read, and the end of the check closes it
            with contextlib.suppress(RuntimeError):  # the loop is closed
                event_loop.remove_reader(self._source.fileno())
                event_loop.run_in_thread(self._source.close)

    def _read(self) -> None:
        try:
            if self._may_have_changed() and self._later is None and self._checking is None:
                self._later = event_loop.call_later(_PAUSE_S, self._start_check)
        except Exception:
            self._give_up()

    def _may_have_changed(self) -> bool:
        if isinstance(self._source, Ticker):
            self._source.rest()
            return True
        return any(
            event.watch in self._inside
            or event.name in self._names
            or event.mask & (inotify.IN_Q_OVERFLOW | inotify.IN_IGNORED)
            for event in self._source.read()
        )

    def _start_check(self) -> None:
        """Nothing is read while the check runs: later changes are events that stay queued."""
        self._stop_timers()
        self._began = time.monotonic()
        event_loop.remove_reader(self._source.fileno())
        self._checking = event_loop.run_in_thread(self._check_until_calm)
        self._checking.add_done_callback(self._after_check)

    def _check_until_calm(self) -> None:
        """Watching comes before looking. For a thread."""
        for _ in range(_MOST_ROUNDS):
            self._arm()
            if not self._check():
                return
        raise RuntimeError("protected files change again and again")

    def _after_check(self, done: event_loop.Future[None]) -> None:
        self._checking = None
        if self._closed:
            event_loop.run_in_thread(self._source.close)
            return
        try:
            done.result()
            event_loop.add_reader(self._source.fileno(), self._read)
            self._clock = event_loop.call_later(pause_after(self._began), self._start_check)
        except Exception:
            self._give_up()

    def _stop_timers(self) -> None:
        for timer in (self._later, self._clock):
            if timer is not None:
                timer.cancel()
        self._later = self._clock = None

    def _give_up(self) -> None:
        """Fail closed: a command that cannot be watched is ended."""
        log.exception("protected files cannot be watched any more: running commands are ended")
        self._stop_timers()
        event_loop.remove_reader(self._source.fileno())
        self._failed()

    def _arm(self) -> None:
        source = self._source
        if isinstance(source, Ticker):
            return
        left = _MOST_FOLDERS
        try:
            for one in self._protected:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    left -= self._arm_one(one, source, left)
        except OSError:
            self._source = Ticker()
            source.close()

    def _arm_one(self, one: Protected, source: Inotify, most: int) -> int:
        folder = open_root(os.path.dirname(one.path))
        count = 0
        try:
            source.add(folder, _CHANGES)
            for fd in _folders(folder, os.path.basename(one.path)):
                count += 1
                if count > most:
                    raise OSError("more folders than can be watched")
                self._inside.add(source.add(fd, _CHANGES))
        finally:
            os.close(folder)
        return count


def _folders(parent: int, name: str) -> Iterator[int]:
    """Descriptors of the folder `name` and of those below, each open until the next one."""
    folder = enter(parent, name)
    if folder is None:
        return
    try:
        yield folder
        names = list_names(folder) or ()
        if len(names) > _MOST_ENTRIES:
            raise OSError("more entries than can be searched")
        for entry in names:
            yield from _folders(folder, entry)
    finally:
        os.close(folder)
