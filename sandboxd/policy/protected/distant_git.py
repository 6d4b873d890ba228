"""Git repositories in the many folders of a large tree, beyond those that each request compares.

The folders are searched again after a while only: to compare thousands of them for each request
would take longer than most commands.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from sandboxd.platform.current import files
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.recording import Filter
from sandboxd.policy.protected import bounded_work

MOST_FOLDERS = 65_536
DEEPEST = 64
AGAIN_S = 30.0  # a repository that the user makes further down is protected after this time
_TIMES_AS_LONG = 100  # as a search took, until the next one
_MOST_KNOWN = 16


class Distant(NamedTuple):
    """`candidates` look like repositories; `searched`: how many folders; valid `until`."""

    starts: frozenset[str]
    candidates: tuple[str, ...]
    searched: int
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
                complete = False
                break
            count += 1
            names, inner = _look(folder, wanted)
            if ".git" in names or {"head", "objects", "refs"} <= names:
                candidates.append(folder)
                if ".git" not in names:
                    continue  # a bare repository's own folders
            below += inner
        level = below
        if not complete or not level:
            break
    took = time.monotonic() - began
    valid = time.monotonic() + max(AGAIN_S, _TIMES_AS_LONG * took)
    return Distant(starts, tuple(candidates), count, complete and not level, valid)


def _look(folder: str, wanted: Filter) -> tuple[set[str], list[str]]:
    """The names that count, in small letters, and the folders among them."""
    names: set[str] = set()
    inner: list[str] = []
    try:
        with files.scandir(folder) as entries:
            for entry in entries:
                is_dir = entry.is_dir(follow_symlinks=False)
                if not wanted(entry.name, is_dir):
                    continue
                name = entry.name.lower()
                names.add(name)
                if is_dir and name != ".git":
                    inner.append(entry.path)
    except OSError:
        return set(), []
    return names, inner
