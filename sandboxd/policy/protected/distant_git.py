"""Git repositories in the many folders of a large tree, beyond those that each request compares.

The folders are searched again after a while only: to compare thousands of them for each request
would take longer than most commands.
"""

from __future__ import annotations

import errno
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from sandboxd.policy.data.protected_names import OTHER_REPOSITORIES
from sandboxd.policy.paths import recording, recording_fs
from sandboxd.policy.paths.recording import Filter
from sandboxd.policy.protected import bounded_work

MOST_FOLDERS = 65_536
DEEPEST = 64
AGAIN_S = 30.0  # a repository that the user makes further down is protected after this time
_TIMES_AS_LONG = 100  # as a search took, until the next one
_MOST_KNOWN = 16
_MARKS = frozenset((".git", *OTHER_REPOSITORIES))


class Distant(NamedTuple):
    """`candidates` look like repositories; valid `until`."""

    starts: frozenset[str]
    candidates: tuple[str, ...]
    complete: bool
    until: float


_known: OrderedDict[str, Distant] = OrderedDict()


def search(workspace: str, starts: Iterable[str], wanted: Filter) -> Distant:
    """In `starts` and below; `wanted` accepts the folders to look into and the marks."""
    below = frozenset(starts)
    found = _known.get(workspace)
    if found is None or time.monotonic() > found.until or not below <= found.starts:
        found = _search(below, wanted)
        _known[workspace] = found
        while len(_known) > _MOST_KNOWN:
            _known.popitem(last=False)
    recording_fs.holds_until(found.until)
    return found


def _search(starts: frozenset[str], wanted: Filter) -> Distant:
    began = time.monotonic()
    until, until_cpu = bounded_work.search_deadlines()
    candidates: list[str] = []
    level, count, complete = sorted(starts), 0, True
    for _ in range(DEEPEST):
        below: list[str] = []
        for folder in level:
            if count >= MOST_FOLDERS or time.monotonic() > until or time.thread_time() > until_cpu:
                return Distant(starts, tuple(candidates), complete=False, until=_valid_until(began))
            count += 1
            names, inner, are_all = _look(folder, wanted)
            complete = complete and are_all
            is_bare = ".git" not in names and {"head", "objects", "refs"} <= names
            if is_bare or not names.isdisjoint(_MARKS):
                candidates.append(folder)
            if is_bare:
                continue  # its own folders
            below += inner
        level = below
        if not level:
            break
    return Distant(starts, tuple(candidates), complete and not level, _valid_until(began))


def _valid_until(began: float) -> float:
    now = time.monotonic()
    return now + max(AGAIN_S, _TIMES_AS_LONG * (now - began))


def _look(folder: str, wanted: Filter) -> tuple[set[str], list[str], bool]:
    """The names that count, in small letters; the folders among them; whether these are all."""
    try:
        entries = recording.select_entries(folder, wanted)
    except OSError as error:
        return set(), [], error.errno != errno.E2BIG
    names = {entry.name.lower() for entry in entries}
    inner = [
        entry.path
        for entry in entries
        if entry.name.lower() != ".git" and entry.is_dir(follow_symlinks=False)
    ]
    return names, inner, True
