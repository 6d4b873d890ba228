"""Git repositories in the many folders of a large tree, beyond those that each request compares.

The folders are searched again after a while only: to compare thousands of them for each request
would take longer than most commands.
"""

from __future__ import annotations

import errno
import re
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from sandboxd.platform.current import files
from sandboxd.policy.data.protected_names import OTHER_REPOSITORIES
from sandboxd.policy.paths import recording, recording_fs
from sandboxd.policy.paths.closed_folders import closing
from sandboxd.policy.paths.recording import Filter
from sandboxd.policy.protected import bounded_work

MOST_FOLDERS = 65_536
DEEPEST = 64
AGAIN_S = 30.0  # a repository that the user makes further down is protected after this time
_TIMES_AS_LONG = 100  # as a search took, until the next one
_MOST_KNOWN = 16
MOST_KNOWN = 4096  # candidates
_STORE = re.compile(r"/objects/([0-9a-f]{2}|pack|info)\Z")
_MARKS = frozenset((".git", *OTHER_REPOSITORIES))


class Distant(NamedTuple):
    """`candidates` look like repositories; valid `until`."""

    starts: frozenset[str]
    candidates: tuple[str, ...]
    complete: bool
    until: float
    closed: tuple[str | None, ...] = ()


_known: OrderedDict[str, Distant] = OrderedDict()


def search(workspace: str, starts: Iterable[str], wanted: Filter) -> Distant:
    """In `starts` and below; `wanted` accepts the folders to look into and the marks."""
    below = frozenset(starts)
    found = _known.get(workspace)
    if found is None or time.monotonic() > found.until or not below <= found.starts:
        before, found = found, _search(below, wanted)
        if before is not None and not found.complete:
            # A command may have made so many folders that those known before are not reached.
            both = dict.fromkeys((*found.candidates, *before.candidates))
            found = found._replace(candidates=tuple(both)[:MOST_KNOWN])
        _known[workspace] = found
        while len(_known) > _MOST_KNOWN:
            _known.popitem(last=False)
    recording_fs.holds_until(found.until)
    return found


def _search(starts: frozenset[str], wanted: Filter) -> Distant:
    began = time.monotonic()
    until, until_cpu = bounded_work.search_deadlines()
    candidates: list[str] = []
    closed: list[str | None] = []
    level, count, complete = sorted(starts), 0, True
    for _ in range(DEEPEST):
        below: list[str] = []
        for folder in level:
            if count >= MOST_FOLDERS or time.monotonic() > until or time.thread_time() > until_cpu:
                until = _valid_until(began)
                return Distant(starts, tuple(candidates), False, until, tuple(closed))
            count += 1
            try:
                names, folders = _look(folder, wanted)
            except OSError as error:
                complete = complete and error.errno != errno.E2BIG
                closed.append(closing(folder, error))
                continue
            is_bare = "head" in names and ("commondir" in names or {"objects", "refs"} <= names)
            if is_bare or not names.isdisjoint(_MARKS):
                candidates.append(folder)
            below += folders
        level = below
        if not level:
            break
    until = _valid_until(began)
    return Distant(starts, tuple(candidates), complete and not level, until, tuple(closed))


def _valid_until(began: float) -> float:
    now = time.monotonic()
    return now + max(AGAIN_S, _TIMES_AS_LONG * (now - began))


def _look(folder: str, wanted: Filter) -> tuple[set[str], list[str]]:
    """The names that count, in small letters, and the folders among them."""
    entries = recording.select_entries(folder, wanted)
    return {entry.name.lower() for entry in entries}, inner(entries)


def inner(entries: Iterable[files.DirEntry]) -> list[str]:
    """The folders to look into. Those of a bare repository too: a command can make any folder
    look like one."""
    return [
        entry.path
        for entry in entries
        if entry.name.lower() != ".git"
        and entry.is_dir(follow_symlinks=False)
        and not _STORE.search(entry.path)
    ]
