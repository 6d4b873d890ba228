"""The writable folders of a plan, held by descriptor: whether one was moved, and where it is now.

A sandbox has mounts (or rules) on inodes, which stay when a folder is renamed, by the host or by a
command in a sandbox that may write the folder above. What is looked at by its path would miss what
is made there from then on.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from sandboxd.linux.openat import open_checked, open_path
from sandboxd.policy.display_names import named
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.plan import Grant, Identity
from sandboxd.posix.descriptors import path_of
from sandboxd.workspace_guard.moves import Moves
from sandboxd.workspace_guard.quarantine.quarantine import Moved, Quarantine, bring_back

_MOST_LOOKS = 8
_REMOVED = " (deleted)"  # how the kernel calls it
_TOO_DEEP = "a place whose path is too long"


class HeldRoot(msgspec.Struct, frozen=True, eq=False):
    """`shown`: what the kernel called it at the start, which need not be its path. `inner`: lies in
    another one, which is looked at as a whole, and nothing in it is protected by itself."""

    path: str
    fd: int
    shown: str
    inner: bool
    is_cache: bool = False

    @property
    def shown_now(self) -> str:
        try:
            return path_of(self.fd)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            return _TOO_DEEP

    def now(self) -> str | None:
        """Its path; None if it has none, or that leads elsewhere. For a thread."""
        shown = self.shown_now
        path = self.path if shown == self.shown else shown
        try:
            if path == _TOO_DEEP:
                return None
            found = open_path(path)
        except OSError:
            return None
        try:
            is_same = Identity.of(os.fstat(found)) == Identity.of(os.fstat(self.fd))
        finally:
            os.close(found)
        return path if is_same else None

    @property
    def removed(self) -> bool:
        return os.fstat(self.fd).st_nlink == 0


class HeldRoots:
    """Make it before a command starts; PathChanged if a folder is not the one of the plan. Each
    that uses it says `hold` (its maker need not) and `release`. `protecting`: those in which
    something is protected by itself."""

    def __init__(self, grants: Iterable[Grant], protecting: Collection[str] = ()) -> None:
        self._roots: list[HeldRoot] = []
        self._users = 1
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}
        self._moved = False
        self.unseen: set[str] = set()  # that could not be looked at
        try:
            self._open([one for one in grants if one.identity.is_dir], protecting)
        except BaseException:
            self.release()
            raise

    def _open(self, grants: list[Grant], protecting: Collection[str]) -> None:
        paths = [one.path for one in grants]
        for one in grants:
            inner = one.path not in protecting and any(is_below(one.path, path) for path in paths)
            fd = open_checked(one.path, one.identity)
            self._roots.append(HeldRoot(one.path, fd, path_of(fd), inner, one.origin == "cache"))

    def follower(self) -> Follower:
        return Follower(self)

    def hold(self) -> HeldRoots:
        with self._lock:
            self._users += 1
        return self

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                for one in self._roots:
                    os.close(one.fd)
                self._roots = []

    @property
    def known_moved(self) -> bool:
        """As `moved`, as of the last time that it was asked."""
        return self._moved

    @property
    def moved(self) -> bool:
        """Whether one was moved since the start. One system call for each; it stays true."""
        if not self._moved:
            self._moved = bool([one for one in self._roots if self._has_moved(one)])
        return self._moved

    def _has_moved(self, root: HeldRoot) -> bool:
        shown = root.shown_now
        if shown == root.shown or (root.inner and self._is_inside(shown)):
            return False
        self._reasons.setdefault(root.path, _reason(root.path, shown))
        return True

    def _is_inside(self, shown: str) -> bool:
        """Still (or until it was removed) in a folder that is looked at as a whole."""
        others = [one.shown_now for one in self._roots if not one.inner]
        return any(within(shown, one) for one in others)

    @property
    def why(self) -> str:
        """How the first one was moved, to where it is now."""
        told = [self._told(one) for one in self._roots if one.path in self._reasons]
        return next(iter(told), "a writable folder was moved")

    def _told(self, root: HeldRoot) -> str:
        shown = root.shown_now
        is_back = shown == root.shown
        return self._reasons[root.path] if is_back else _reason(root.path, shown)

    def places(self) -> dict[str, str | None]:
        """Where each is now, if one was moved. For a thread."""
        return {one.path: one.now() for one in self._roots} if self.moved else {}

    def moves(self) -> Moves:
        return Moves(self.places())

    def bring_back(self) -> list[Moved]:
        """Those that lie in another one, by which a command may have moved them: what is in their
        place, too, is the command's. For a thread, when nothing of the sandbox runs."""
        found: list[Moved] = []
        for one in self._roots:
            if not one.inner and self._has_moved(one):
                found += self._brought_back(one)
        return found

    def _brought_back(self, one: HeldRoot) -> Iterator[Moved]:
        around = [other for other in self._roots if is_below(one.path, other.path)]
        outer = min(around, key=lambda other: len(other.path), default=None)
        if outer is not None and not self._has_moved(outer):
            quarantine = Quarantine(outer.fd, outer.path)
            try:
                yield bring_back(one.fd, outer.fd, outer.path, one.path)(quarantine)
            finally:
                quarantine.close()

    def warnings(self) -> list[str]:
        """What the result says when one was moved. For a thread."""
        return [*map(self._warning, filter(self._has_been_moved, self._roots))]

    def _has_been_moved(self, root: HeldRoot) -> bool:
        return self._has_moved(root) or root.path in self._reasons

    def _warning(self, root: HeldRoot) -> str:
        now = root.now()
        how = self._told(root) if now in (None, root.path) else _reason(root.path, now or "")
        said = f"{how} while the command could write it, so it was ended"
        if now is None or root.path in self.unseen:
            where = "what it made there could not all be looked at"
            if root.removed and root.is_cache:
                return (
                    f"{said}; it is the workspace's private cache of package managers, and the "
                    "next command gets a new one. No daemon and no `sandboxctl cache prune` "
                    "removes a cache in use: another program did"
                )
            if root.removed:
                where = "nothing of it is left to be looked at"
            return (
                f"{said}; {where}: before you use it, or a copy of it, look for new names such as "
                ".git, .envrc and .vscode"
            )
        if now == root.path:
            return f"{said}; it is there again, and protected files were looked at"
        return (
            f"{said}; protected files were looked at in {named(now)}, and your own files are as "
            "they were moved: send the command again with the folder's path, and move folders "
            "when no command works in them"
        )


class Follower:
    """Does looks that go by path again wherever the folders have gone."""

    def __init__(self, roots: HeldRoots) -> None:
        self._roots = roots
        self._at: dict[str, str | None] = {}

    def look(self, follow: Callable[[Moves], None], look: Callable[[], None]) -> None:
        """`follow` is called before a look if folders have moved since the last. For a thread."""
        for _ in range(_MOST_LOOKS):
            places = self._roots.places()
            if places != self._at:
                follow(Moves(dict(self._since(places))))
                self._at = places
            try:
                look()
            except OSError:
                if not self._roots.moved:
                    raise
            else:
                if self._roots.places() == places:
                    self._roots.unseen.update(one for one, now in places.items() if now is None)
                    return
        self._roots.unseen.update(self._at)

    def _since(self, places: dict[str, str | None]) -> Iterator[tuple[str, str | None]]:
        for path, now in places.items():
            before = self._at.get(path, path)
            if before is not None:  # what was dropped is not found again
                yield before, now


def _reason(path: str, shown: str) -> str:
    if shown == _TOO_DEEP:
        return f"{named(path)} was moved to {shown}"
    is_removed = shown.endswith(_REMOVED)
    return f"{named(path)} was " + ("removed" if is_removed else f"moved to {named(shown)}")
