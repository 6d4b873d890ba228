"""The callbacks of readable descriptors, and a selector that calls them and the timers itself.

Most descriptors live as long as one command. For asyncio each of them takes about fifty calls in
Python and four exceptions, and each event ten; here one system call adds a descriptor, one removes
it, and its callback is called where the loop has waited.
"""

from __future__ import annotations

import errno
import select
import selectors
import sys
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from sandboxd.timers import MOST_AT_ONCE, PolledTimers

assert sys.platform == "linux"

LONGEST_WAIT_S = 86400.0  # epoll takes no more than 24 days
Entry = tuple[Callable[..., object], tuple[Any, ...]]


class ReadyFiles:
    """`failed` is told of a callback that raised."""

    def __init__(self, failed: Callable[[str, Exception], None]) -> None:
        self._failed = failed
        self._epoll = select.epoll()
        self._entries: dict[int, Entry] = {}

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        self._epoll.close()

    def add(
        self, fd: int, callback: Callable[..., object], args: tuple[Any, ...],
        events: int = select.EPOLLIN,
    ) -> None:  # fmt: skip
        """It replaces an earlier one."""
        if fd in self._entries:
            self.remove(fd)  # the number may be that of another file now
        try:
            self._epoll.register(fd, events)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise OSError(errno.EMFILE, "no epoll watches are left to this user") from None
        self._entries[fd] = callback, args

    def remove(self, fd: int) -> None:
        if self._entries.pop(fd, None) is not None:
            try:  # noqa: SIM105 - `suppress` takes longer than the call
                self._epoll.unregister(fd)
            except OSError:
                pass  # closed already

    def call(self, timeout_s: float = 0) -> None:
        """Wait for so long (-1: for ever) for one to be readable, and call it."""
        found = self._epoll.poll(timeout_s, MOST_AT_ONCE)
        if len(found) == 1:
            self._call(found[0][0], self._entries.get(found[0][0]))
            return
        for fd, entry in [(fd, self._entries.get(fd)) for fd, _ in found]:
            if self._entries.get(fd) is entry:  # else another callback has removed or replaced it
                self._call(fd, entry)

    def _call(self, fd: int, entry: Entry | None) -> None:
        if entry is None:
            return
        callback, args = entry
        try:
            callback(*args)
        except Exception as error:
            self._failed(f"the callback {callback!r} failed", error)


class Selector(selectors.BaseSelector):
    """For asyncio's loop. Its own descriptors are in a selector that is one of the files here."""

    def __init__(self) -> None:
        self._loops_own = selectors.EpollSelector()
        self._ready: list[tuple[selectors.SelectorKey, int]] = []
        self.files: ReadyFiles
        self.timers: PolledTimers

    def attach(self, timers: PolledTimers, failed: Callable[[str, Exception], None]) -> None:
        self.timers = timers
        self.files = ReadyFiles(failed)
        self.files.add(self._loops_own.fileno(), self._look, ())

    def _look(self) -> None:
        self._ready = self._loops_own.select(0)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        left = self.timers.seconds_left()
        if left is not None and (timeout is None or left < timeout):
            timeout = min(left, LONGEST_WAIT_S)
        if timeout is None:
            timeout = -1
        elif timeout > 0:
            timeout = ceil(timeout * 1e3) * 1e-3  # a timer is never early
        else:
            timeout = 0
        self._ready = []
        self.files.call(timeout)
        if left is not None:
            self.timers.run_if_due()
        return self._ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._loops_own.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._loops_own.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._loops_own.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._loops_own.get_map()

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._loops_own.get_key(fileobj)

    def close(self) -> None:
        self._loops_own.close()
        self.files.close()
