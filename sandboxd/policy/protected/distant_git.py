"""Git repositories in the many folders of a large tree, beyond those that each request compares.

The folders are searched again after a while only: to compare thousands of them for each request
would take longer than most commands. What a command makes there meanwhile is found when it ends
(`workspace_guard/repositories/new_repositories`).
"""

from __future__ import annotations

import errno
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from sandboxd.platform.current import files
from sandboxd.policy.data.protected_names import OTHER_REPOSITORIES
from sandboxd.policy.paths import recording, recording_fs
from sandboxd.policy.paths.closed_folders import closing
from sandboxd.policy.paths.recording import Fact, Filter
from sandboxd.policy.protected import scan_limits

MOST_FOLDERS = 65_536
DEEPEST = 64
AGAIN_S = 30.0  # a repository that the user makes further down is protected after this time
_TIMES_AS_LONG = 100  # as a search took, until the next one
_MOST_KNOWN = 16
MOST_KNOWN = 4096  # candidates
_STORE = re.compile(r"/objects/([0-9a-f]{2}|pack|info)\Z")
MOST_UNSEARCHED = 128
_MARKS = frozenset((".git", *OTHER_REPOSITORIES))


class Searched(NamedTuple):
    """`joined`: folders, parents first, in one string for the memory that they take. `at_ns`: when
    their search began."""

    joined: str
    at_ns: int

    @property
    def folders(self) -> list[str]:
        return self.joined.split("\0") if self.joined else []


@dataclass(slots=True)
class DistantFolders:
    """Those of one writable folder; None when they were forgotten."""

    last: Searched | None = None


class Distant(msgspec.Struct, frozen=True):
    """`candidates` look like repositories; valid `until`. `unsearched`: folders that are not known,
    with all that is below them; more than MOST_UNSEARCHED if there are too many to name."""

    starts: frozenset[str]
    candidates: tuple[str, ...]
    until: float
    unsearched: tuple[str, ...] = ()
    closed: tuple[str | None, ...] = ()
    folders: DistantFolders = msgspec.field(default_factory=DistantFolders)
    fact: Fact = msgspec.field(default_factory=Fact)


_known: OrderedDict[str, Distant] = OrderedDict()
_lock = threading.Lock()


def search(workspace: str, starts: Iterable[str], wanted: Filter) -> Distant:
    """In `starts` and below; `wanted` accepts the folders to look into and the marks."""
    below = frozenset(starts)
    found = _known.get(workspace)
    if found is None or not _is_valid(found, below):
        before, found = found, _Search(workspace, below, wanted).run()
        if before is not None and found.unsearched:
            # A command may have made so many folders that those known before are not reached.
            found = _with_candidates(found, before.candidates)
        elif before is not None and before.starts == below:
            # The same for sandboxes that are up; others keep what belongs to their own plan.
            before.folders.last = found.folders.last
            found = replace(found, folders=before.folders)
        with _lock:
            _keep(workspace, found)
    recording_fs.holds_until(found.until)
    recording_fs.holds_while(found.fact)
    return found


def _is_valid(found: Distant, starts: frozenset[str]) -> bool:
    if time.monotonic() > found.until:
        return False
    # Folders that were not reached may be, when others are gone.
    return starts == found.starts if found.unsearched else starts <= found.starts


def add_repositories(workspace: str, repositories: Iterable[str]) -> None:
    """These were found at the end of a command: the next plan knows them."""
    with _lock:
        found = _known.get(workspace)
        if found is None:
            return
        more = set(repositories).difference(found.candidates)
        if len(found.candidates) + len(more) > MOST_KNOWN:
            del _known[workspace]  # searched again
        elif more:
            _known[workspace] = _with_candidates(found, sorted(more))
        found.fact.holds = found.fact.holds and not more


def forget(workspace: str) -> None:
    """Search again for the next plan."""
    with _lock:
        _known.pop(workspace, None)


def _with_candidates(found: Distant, more: Iterable[str]) -> Distant:
    both = tuple(dict.fromkeys((*found.candidates, *more)))[:MOST_KNOWN]
    return replace(found, candidates=both, fact=Fact())


def _keep(workspace: str, found: Distant) -> None:
    _known[workspace] = found
    _known.move_to_end(workspace)
    while len(_known) > _MOST_KNOWN:
        _, oldest = _known.popitem(last=False)
        oldest.folders.last = None


class _Search:
    def __init__(self, workspace: str, starts: frozenset[str], wanted: Filter) -> None:
        self._workspace = workspace
        self._starts = starts
        self._wanted = wanted
        self._looked: list[str] = []
        self._candidates: list[str] = []
        self._closed: list[str | None] = []
        self._crowded: list[str] = []  # too many entries to look at

    def run(self) -> Distant:
        began, began_ns = time.monotonic(), time.time_ns()
        until, until_cpu = scan_limits.search_deadlines()
        left: list[str] = sorted(self._starts)
        for _ in range(DEEPEST):
            level, left = left, []
            for index, folder in enumerate(level):
                late = time.monotonic() > until or time.thread_time() > until_cpu
                if late or len(self._looked) >= MOST_FOLDERS:
                    return self._found(began, began_ns, [*level[index:], *left])
                self._looked.append(folder)
                left += self._look(folder)
            if not left:
                break
        return self._found(began, began_ns, left)

    def _found(self, began: float, began_ns: int, left: list[str]) -> Distant:
        folders = DistantFolders(Searched("\0".join(self._looked), began_ns))
        return Distant(
            self._starts, tuple(self._candidates), _valid_until(began),
            _few(self._workspace, (*left, *self._crowded)), tuple(self._closed), folders,
        )  # fmt: skip

    def _look(self, folder: str) -> list[str]:
        """The folders in it that are to be searched."""
        try:
            names, folders = _entries(folder, self._wanted)
        except OSError as error:
            if error.errno == errno.E2BIG:
                self._crowded.append(folder)
            self._closed.append(closing(folder, error))
            return []
        is_bare = "head" in names and ("commondir" in names or {"objects", "refs"} <= names)
        if is_bare or not names.isdisjoint(_MARKS):
            self._candidates.append(folder)
        return folders


def _few(workspace: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Themselves, or the folders of the workspace that they lie in."""
    if len(folders) <= MOST_UNSEARCHED:
        return folders
    skip = len(workspace.rstrip("/")) + 1
    tops = {folder[:skip] + folder[skip:].partition("/")[0] for folder in folders}
    return tuple(sorted(tops)[: MOST_UNSEARCHED + 1])


def _valid_until(began: float) -> float:
    now = time.monotonic()
    return now + max(AGAIN_S, _TIMES_AS_LONG * (now - began))


def _entries(folder: str, wanted: Filter) -> tuple[set[str], list[str]]:
    """The names that count, in small letters, and the folders among them."""
    entries = recording.select_entries(folder, wanted)
    return {entry.name.lower() for entry in entries}, inner(entries)


def inner(entries: Iterable[files.DirEntry]) -> list[str]:
    """The folders to look into. Those of a bare repository too: a command can make any folder
    look like one."""
    return [
        entry.path
        for entry in entries
        if entry.name.lower() != ".git" and entry.is_dir(follow_symlinks=False)
    ]


def is_store(path: str) -> bool:
    """Whether it may be a folder of git objects, of which each repository has hundreds."""
    return _STORE.search(path) is not None
