"""Check whether the lookups that a plan was made from would still have the same results."""

from __future__ import annotations

import math
import posixpath
import stat as modes
import time
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from sandboxd.platform.current import files
from sandboxd.policy.data.system_dirs import SLOW
from sandboxd.policy.paths.notices import FolderNotices, FolderWatch
from sandboxd.policy.paths.recording import (
    Extract,
    Filter,
    Listing,
    Name,
    Recording,
    Stamp,
    is_past,
    list_entries,
    listing_of,
    name_from,
    name_of,
    select_entries,
    shared,
    stamp_of,
)
from sandboxd.policy.paths.within import folders_above, is_below, within_any

SYSTEM_S = 1.0
# More than these are compared by a thread.
MANY_LOOKS = 4096
LARGE_BYTES = 64 * 1024


class TakesLong(Exception):
    """The comparison is for a thread."""


@dataclass(slots=True)
class _Recorded:
    """Compared again only while its stamp is another one than at the last comparison."""

    path: str
    stamp: Stamp | None = field(default=None, kw_only=True)

    def holds(self, *, briefly: bool, found: Stamp | None = None) -> bool:
        """`found`: its stamp, if this comparison has looked at it already."""
        found = found or stamp_of(self.path)  # first: what changes from here on changes it
        if found is not None and found == self.stamp:
            return True
        if briefly and self._is_large():
            raise TakesLong
        if not self._compared():
            return False
        past = found is not None and is_past(found, time.time_ns())
        self.stamp = found if past else None
        return True

    def _is_large(self) -> bool:
        try:
            return files.lstat(self.path).st_size > LARGE_BYTES
        except OSError:
            return False

    def _compared(self) -> bool:
        raise NotImplementedError


@dataclass(slots=True)
class _RecordedFolder(_Recorded):
    """The names seen in one folder, and its listing. Once they were compared, its stamp stands for
    them. Folders are not among them: something can be mounted on one, or its mode changed, and the
    ctime of the folder above stays as it was."""

    names: frozenset[tuple[str, Name]] = frozenset()
    listing: Listing | None = None
    selections: list[tuple[Filter, Listing]] = field(default_factory=list)

    @property
    def is_one_name(self) -> bool:
        """Then a look at the folder is worth no less than one at the name."""
        return len(self.names) < 2 and self.listing is None and not self.selections

    def _compared(self) -> bool:
        return (
            all(name_of(path) == name for path, name in self.names)
            and (self.listing is None or self.listing == self._listed())
            and all(self._select(wanted) == known for wanted, known in self.selections)
        )

    def _select(self, wanted: Filter) -> Listing | None:
        try:
            return listing_of(select_entries(self.path, wanted))
        except OSError:
            return None

    def _listed(self) -> Listing | None:
        try:
            return listing_of(list_entries(self.path))
        except OSError:
            return None


@dataclass(slots=True)
class _RecordedExtract(_Recorded):
    extract: Extract
    value: Hashable

    def _compared(self) -> bool:
        return self.extract(self.path) == self.value


class _SeenPath:
    """All that was noted of one path that is no watched folder, for one look at it."""

    __slots__ = ("content", "names", "records")

    def __init__(self) -> None:
        self.names: tuple[Name, ...] = ()  # what the name led to, if that counts
        self.content: Stamp | None = None
        self.records: list[_Recorded] = []


# A folder, what it was, and what of it counts.
_Seen = tuple[str, tuple[int, ...], "_RecordedFolder | None"]


class _Part:
    def __init__(self, notes: Recording) -> None:
        named: dict[str, list[tuple[str, Name]]] = {}
        seen: list[tuple[str, tuple[int, ...]]] = []
        for path, name in notes.names.items():
            above = posixpath.dirname(path)
            if name is not None and modes.S_ISDIR(name[2]):
                seen.append((path, name))
            # Everything below a missing path is missing too.
            elif notes.names.get(above, ()) is not None:
                named.setdefault(above, []).append((path, name))
        folders = {
            path: _RecordedFolder(path, names=shared(frozenset(names)))
            for path, names in named.items()
        }
        for path, listing in notes.listings.items():
            folders.setdefault(path, _RecordedFolder(path)).listing = listing
        for (path, wanted), listing in notes.selections.items():
            folders.setdefault(path, _RecordedFolder(path)).selections.append((wanted, listing))
        alone = [p for p, f in folders.items() if f.is_one_name]
        paths: defaultdict[str, _SeenPath] = defaultdict(_SeenPath)
        for path, name in [one for folder in alone for one in folders.pop(folder).names]:
            paths[path].names = (name,)
        # Each with its record, if there is one: so it is looked at once.
        self._folders_seen: dict[str, _Seen] = {
            path: (path, name, folders.pop(path, None)) for path, name in seen
        }
        self._watch: FolderWatch | None = None
        extracts = [_RecordedExtract(p, e, v) for (p, e), v in notes.extracts.items()]
        for record in (*folders.values(), *extracts):
            paths[record.path].records.append(record)
        for path, stamp in notes.contents.items():
            paths[path].content = stamp
        self._paths = list(paths.items())
        self._looks = len(notes.names) + len(notes.contents) + len(extracts)

    def holds(self, *, briefly: bool, notices: FolderNotices | None = None) -> bool:
        """`notices`: only folders that changed since the last time are looked at."""
        holds = False
        try:
            holds = self._compare(briefly=briefly, notices=notices)
        finally:
            if not holds and notices is not None:
                self.close()  # next time all of them are looked at
        return holds

    def _compare(self, *, briefly: bool, notices: FolderNotices | None) -> bool:
        if briefly and self._looks > MANY_LOOKS:
            raise TakesLong
        seen = self._to_look_at(notices)
        return self._folders_hold(seen, briefly=briefly) and self._paths_hold(briefly=briefly)

    def _to_look_at(self, notices: FolderNotices | None) -> Iterable[_Seen]:
        if notices is None:
            return self._folders_seen.values()
        changed = self._watch.changes() if self._watch is not None else None
        if changed is not None:
            return [self._folders_seen[path] for path in changed]
        seen, before = self._folders_seen.values(), self._watch
        self._watch = notices.watch({path: (name[0], bool(record)) for path, name, record in seen})
        if before is not None:
            before.close()
        return seen

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _folders_hold(self, seen: Iterable[_Seen], *, briefly: bool) -> bool:
        """`name_from` and `stamp_from` in place: a plan looks at up to thousands of folders for
        each request."""
        lstat = files.lstat
        try:
            for path, name, folder in seen:
                found = lstat(path)
                mode = found.st_mode
                if (found.st_dev, found.st_ino, mode, found.st_uid, found.st_gid) != name:
                    return False
                if folder is not None:
                    stamp = found.st_dev, found.st_ino, found.st_ctime_ns
                    if stamp != folder.stamp and not folder.holds(briefly=briefly, found=stamp):
                        return False
        except (OSError, ValueError):
            return False
        return True

    def _paths_hold(self, *, briefly: bool) -> bool:
        """In place, too."""
        lstat = files.lstat
        for path, seen in self._paths:
            try:
                found = lstat(path)
            except (OSError, ValueError):
                if seen.content is not None or seen.names not in ((), (None,)):
                    return False
                stamp = None
            else:
                if seen.names and name_from(found) != seen.names[0]:
                    return False
                stamp = found.st_dev, found.st_ino, found.st_ctime_ns
                if seen.content is not None and stamp != seen.content:
                    return False
            for one in seen.records:
                if (stamp is None or stamp != one.stamp) and not one.holds(
                    briefly=briefly, found=stamp
                ):
                    return False
        return True


class Basis:
    """What was noted, to be compared with what is there now.

    System folders are compared once in SYSTEM_S: no command can write there, and what appears
    there is visible at once in every sandbox that is up, whether or not it is compared. Not among
    them: what lies in `own`, and the names on the way to the paths that the request `named`.
    """

    def __init__(self, notes: Recording, own: Iterable[str], named: Iterable[str] = ()) -> None:
        mine = tuple(own)
        on_the_way = {
            folder for path in named for folder in (path, *folders_above(path))
            if folder in notes.names
        }  # fmt: skip
        quick, slow = Recording(), Recording()

        def part_of(path: str) -> Recording:
            return slow if path not in on_the_way and _is_system(path, mine) else quick

        for path, name in notes.names.items():
            part_of(path).names[path] = name
        for path, stamp in notes.contents.items():
            part_of(path).contents[path] = stamp
        for path, listing in notes.listings.items():
            part_of(path).listings[path] = listing
        for (path, wanted), listing in notes.selections.items():
            part_of(path).selections[path, wanted] = listing
        quick.extracts = notes.extracts
        self._quick, self._slow = _Part(quick), _shared_part(slow)
        self._slow_from = -math.inf
        self._until = notes.until
        self._facts = tuple(notes.facts)

    def holds(self, *, briefly: bool = False, notices: FolderNotices | None = None) -> bool:
        """`briefly`: TakesLong where there is much to compare. `notices`: for the event loop's
        thread only."""
        now = time.monotonic()
        if now > self._until or not all(one.holds for one in self._facts):
            return False
        if not self._quick.holds(briefly=briefly, notices=notices):
            return False
        if now - self._slow_from < SYSTEM_S:
            return True
        if not self._slow.holds(briefly=False):
            return False
        self._slow_from = now
        return True

    def close(self) -> None:
        """It is not compared any more. For the event loop's thread."""
        self._quick.close()

    def holds_now(self) -> bool:
        """Compares everything, and leaves the time of the last comparison as it is."""
        if time.monotonic() > self._until or not all(one.holds for one in self._facts):
            return False
        return self._compared()

    def is_same(self) -> bool:
        """The same at any time: whether something changed, not whether it is to be used."""
        return all(one.holds for one in self._facts) and self._compared()

    def _compared(self) -> bool:
        return self._quick.holds(briefly=False) and self._slow.holds(briefly=False)


_shared: deque[tuple[Recording, _Part]] = deque(maxlen=4)


def _shared_part(notes: Recording) -> _Part:
    """One for all plans that have seen the same: most plans look at the same system folders."""
    for known, part in list(_shared):
        if known == notes:
            return part
    part = _Part(notes)
    _shared.appendleft((notes, part))
    return part


def _is_system(path: str, own: tuple[str, ...]) -> bool:
    return any(is_below(path, one) for one in SLOW) and not within_any(path, own)
