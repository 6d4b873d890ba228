"""Tells which folders of kept plans may have changed: inotify instead of a look at each of them.

The kernel queues an event before the call that caused it returns. What it has no events for is
looked at for each request: file systems that others can change (network, FUSE), and those of the
kernel itself. A new mount has no event either, so after any change of mounts, as after an overflow,
all folders are looked at again. Folders above are watched too, from the root on, because a rename
of one of them leads a path elsewhere; what lies below it is then watched anew.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from sandboxd.linux.inotify import (
    IN_ATTRIB,
    IN_CREATE,
    IN_DELETE,
    IN_DELETE_SELF,
    IN_IGNORED,
    IN_MOVE_SELF,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    IN_Q_OVERFLOW,
    Inotify,
    InotifyEvent,
)

_NAMES = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO
_GONE = IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED
_MASK = _NAMES | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF
_LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"))
MOST_WATCHED = 4096  # a user's limit is 8192 or more, and editors need some
MOST_OVERFLOWS, PAUSE_S = 3, 60.0  # where so much happens, looking costs less than listening
MOST_READS = 2  # of about a thousand events each
_MOST_DRAINED = 64
_K = TypeVar("_K")


class _Node:
    """A folder that is watched, with the nodes below it by `_key`."""

    __slots__ = ("below", "entries", "generation", "itself", "key", "parent", "path", "watch")

    def __init__(self, path: str, parent: _Node | None, watch: int, generation: int) -> None:
        self.path = path
        self.parent = parent
        self.key = _key(path[path.rfind("/") + 1 :])
        self.watch = watch
        self.generation = generation
        self.below: dict[str, set[_Node]] = {}
        self.itself: set[InotifyWatch] = set()  # told when it changes itself
        self.entries: set[InotifyWatch] = set()  # told when its entries change


def _key(name: str) -> str:
    """Equal for names that a file system may take for one."""
    return name.lower() if name.isascii() else ""


class InotifyWatch:
    def __init__(self, notices: InotifyNotices, folders: Mapping[str, tuple[int, bool]]) -> None:
        self._notices = notices
        self._folders = folders
        self._unwatched: set[str] = set()
        self.changed: set[str] = set()
        self.lost = False
        self._arm(folders)

    def _arm(self, paths: Iterable[str]) -> None:
        for path in sorted(paths):  # folders above come first
            device, entries = self._folders[path]
            node = self._notices.node(path, device)
            if node is None:
                self._unwatched.add(path)
                continue
            self._unwatched.discard(path)
            node.itself.add(self)
            if entries:
                node.entries.add(self)

    def changes(self) -> set[str] | None:
        self._notices.look()
        if self.lost:
            return None
        changed, self.changed = self.changed, set()
        self._arm(changed)
        return changed | self._unwatched

    def close(self) -> None:
        self._notices.forget(self, self._folders)


class InotifyNotices:
    """One for a daemon. After `_lose_all` each node is compared again before it is relied on."""

    def __init__(self, mountinfo: str = "/proc/self/mountinfo") -> None:
        self._inotify = Inotify()
        self._mountinfo = os.open(mountinfo, os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._inotify.fileno(), select.POLLIN)
        self._poll.register(self._mountinfo, select.POLLPRI)
        self._nodes: dict[str, _Node] = {}
        self._by_watch: dict[int, set[_Node]] = {}
        self._watches: set[InotifyWatch] = set()
        self._generation = 0
        self._kinds: dict[int, str] = {}
        self._overflows: list[float] = []
        self._read_kinds()

    def watch(self, folders: Mapping[str, tuple[int, bool]]) -> InotifyWatch | None:
        self.look()
        if self._is_pausing():
            return None
        made = InotifyWatch(self, folders)
        self._watches.add(made)
        return made

    def _is_pausing(self) -> bool:
        recent = time.monotonic() - PAUSE_S
        self._overflows = [when for when in self._overflows if when > recent]
        return len(self._overflows) >= MOST_OVERFLOWS

    def node(self, path: str, device: int) -> _Node | None:
        """None where it cannot be watched."""
        found = self._nodes.get(path)
        if found is not None and found.generation == self._generation:
            return found
        if self._kinds.get(device) not in _LOCAL or len(self._nodes) >= MOST_WATCHED:
            return None
        parent = None
        if path != "/":  # first: where a folder above has moved, this node goes with it
            above = path[: path.rfind("/")] or "/"
            parent = self.node(above, _device_of(above))
            if parent is None:
                return None
        try:
            watch = self._inotify.add_path(path, _MASK)  # of one folder always the same number
        except OSError:  # not readable, no more watches, gone
            return None
        found = self._nodes.get(path)
        if found is not None and found.watch == watch:
            found.generation = self._generation
            return found
        if found is not None:
            self._drop(found)
        made = self._nodes[path] = _Node(path, parent, watch, self._generation)
        self._by_watch.setdefault(watch, set()).add(made)
        if parent is not None:
            parent.below.setdefault(made.key, set()).add(made)
        return made

    def look(self) -> None:
        """One poll, if nothing has happened."""
        for fd, _ in self._poll.poll(0):
            if fd == self._mountinfo:
                self._lose_all()
                self._read_kinds()
            else:
                self._read()

    def _read(self) -> None:
        for _ in range(MOST_READS):
            for event in list(self._inotify.read()):
                if event.mask & IN_Q_OVERFLOW:
                    self._overflow()
                    return
                for node in list(self._by_watch.get(event.watch, ())):
                    self._tell(node, event)
            if not self._inotify.backlog():
                return
        self._overflow()

    def _overflow(self) -> None:
        self._overflows.append(time.monotonic())
        self._lose_all()
        for _ in range(_MOST_DRAINED):
            if not any(True for _ in self._inotify.read()):
                break

    def _tell(self, node: _Node, event: InotifyEvent) -> None:
        if event.mask & _GONE:
            self._drop(node)
            return
        if not event.name:
            _stir(node.itself, node.path)
            return
        _stir(node.entries, node.path)
        if event.mask & _NAMES:
            key = _key(event.name)
            keys = list(node.below) if key == "" else [key, ""]
            for below in [one for key in keys for one in node.below.get(key, ())]:
                self._drop(below)

    def _drop(self, top: _Node) -> None:
        """It and all below may be elsewhere: they are watched anew by those who look at them."""
        dropped = [top]
        for node in dropped:
            dropped += [one for same in node.below.values() for one in same]
            _stir(node.itself | node.entries, node.path)
        for node in reversed(dropped):
            self._remove(node)

    def _remove(self, node: _Node) -> None:
        if self._nodes.get(node.path) is node:
            del self._nodes[node.path]
        if node.parent is not None:
            _discard(node.parent.below, node.key, node)
        _discard(self._by_watch, node.watch, node)
        if node.watch not in self._by_watch:
            with suppress(OSError):  # the folder is gone
                self._inotify.remove(node.watch)

    def _lose_all(self) -> None:
        self._generation += 1
        for watch in self._watches:
            watch.lost = True
        self._watches.clear()

    def forget(self, watch: InotifyWatch, paths: Iterable[str]) -> None:
        self._watches.discard(watch)
        for path in sorted(paths, reverse=True):
            node = self._nodes.get(path)
            if node is not None:
                node.itself.discard(watch)
                node.entries.discard(watch)
            while node is not None and not (node.itself or node.entries or node.below):
                self._remove(node)
                node = node.parent

    def _read_kinds(self) -> None:
        os.lseek(self._mountinfo, 0, os.SEEK_SET)
        pieces = []
        while piece := os.read(self._mountinfo, 1 << 16):
            pieces.append(piece)
        self._kinds.clear()
        for line in b"".join(pieces).splitlines():
            before, _, after = line.partition(b" - ")
            fields = before.split(b" ")
            if len(fields) > 2:
                major, _, minor = fields[2].partition(b":")
                device = os.makedev(int(major), int(minor))
                self._kinds[device] = os.fsdecode(after.partition(b" ")[0])

    def close(self) -> None:
        self._inotify.close()
        os.close(self._mountinfo)


def _discard(sets: dict[_K, set[_Node]], key: _K, node: _Node) -> None:
    same = sets.get(key)
    if same is not None:
        same.discard(node)
        if not same:
            del sets[key]


def _stir(watches: set[InotifyWatch], path: str) -> None:
    for watch in watches:
        watch.changed.add(path)


def _device_of(path: str) -> int:
    try:
        return os.lstat(path).st_dev
    except OSError:
        return 0
