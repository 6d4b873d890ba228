"""Limit how much of a workspace's repositories one plan reads. A command can leave any number of
them, with settings of any length, and the next request plans with what it left.

A repository that exceeds a bound can only be read by commands: the workspace can still be used.
"""

from __future__ import annotations

import posixpath
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sandboxd.policy.display_names import named
from sandboxd_proto.errors import PathDenied

PATHS, MOUNTS, SETTINGS = "paths to protect", "existing paths to protect", "bytes of settings"
Bounds = dict[str, int]
# A repository has about two hundred paths, of which ten exist and are mounts of their own.
# Bubblewrap takes fewer than 3000 mounts, and needs ten seconds for 1000.
ALL: Bounds = {PATHS: 65_536, MOUNTS: 2000, SETTINGS: 8 << 20}
NESTED: Bounds = {PATHS: 65_536, MOUNTS: 512, SETTINGS: 8 << 20}  # all but the one at the top
ONE_NESTED: Bounds = {PATHS: 4096, MOUNTS: 128, SETTINGS: 1 << 20}
# Settings that name programs, in one git dir: each may lead to many paths.
MOST_PROGRAMS = 512
MOST_IN_A_LINE = 8192  # characters of a command line in a setting
# For the search of distant folders, of this thread's CPU time and of any.
MOST_SEARCH_CPU_S = 1.0
MOST_SEARCH_S = 10.0
MOST_INCLUDES = 256  # config files, for one git dir
MOST_FOREIGN_NAMES = 64  # in one git dir, besides those of git's daily work


class Unprotectable(PathDenied):
    """A repository that is protected only if nothing in it can be written."""


class TooMuch(Unprotectable):
    pass


class _Work:
    def __init__(self, of: str, most: Bounds, parent: _Work | None = None) -> None:
        self.of = of
        self.most = most
        self.done = dict.fromkeys(most, 0)
        self.parent = parent
        self.deadlines: tuple[float, float] | None = None

    def add(self, kind: str, amount: int) -> None:
        """To this and to what it is part of."""
        self.done[kind] += amount
        if self.parent is not None:
            self.parent.add(kind, amount)

    def check(self, kind: str) -> None:
        if self.done[kind] > self.most[kind]:
            raise TooMuch(
                f"{self.of} more than {self.most[kind]} {kind}", field="workspace",
                remedy="remove what a command left there, or give another folder as the workspace",
            )  # fmt: skip
        if self.parent is not None:
            self.parent.check(kind)

    def take_back(self) -> None:
        for kind, amount in self.done.items():
            self.add(kind, -amount)


_work: ContextVar[_Work | None] = ContextVar("work for one workspace", default=None)
_nested: ContextVar[_Work | None] = ContextVar("work for nested repositories", default=None)


@contextmanager
def for_workspace(path: str) -> Iterator[None]:
    whole = _Work(f"{named(path)} has", ALL)
    nested = _Work(f"the repositories in folders of {named(path)} have together", NESTED, whole)
    tokens = _work.set(whole), _nested.set(nested)
    try:
        yield
    finally:
        _work.reset(tokens[0])
        _nested.reset(tokens[1])


@contextmanager
def for_repository(folder: str, *, nested: bool) -> Iterator[None]:
    """If it is too much, nothing of it counts."""
    most = ONE_NESTED if nested else ALL
    work = _Work(
        f"the repository in {named(folder)} has", most, _nested.get() if nested else _work.get()
    )
    token = _work.set(work)
    try:
        yield
    except Unprotectable:
        work.take_back()
        raise
    finally:
        _work.reset(token)


def count(kind: str, amount: int = 1) -> None:
    work = _work.get()
    if work is not None:
        work.add(kind, amount)
        work.check(kind)


def search_deadlines() -> tuple[float, float]:
    """Until when distant folders are searched, by the monotonic clock and this thread's CPU time:
    one time for all writable folders of a request, from the first search on."""
    work = _work.get()
    if work is not None and work.deadlines is not None:
        return work.deadlines
    found = time.monotonic() + MOST_SEARCH_S, time.thread_time() + MOST_SEARCH_CPU_S
    if work is not None:
        work.deadlines = found
    return found


def check_programs(git_dir: str, count: int, line: str) -> None:
    """`count` settings that name programs so far, the last of them in `line`."""
    what = ""
    if count > MOST_PROGRAMS:
        what = f"names programs in more than {MOST_PROGRAMS} settings"
    elif len(line) > MOST_IN_A_LINE:
        what = f"has a command line of more than {MOST_IN_A_LINE} characters"
    if what:
        raise TooMuch(
            f"the config of {named(git_dir)} {what}: these cannot all be protected",
            field="workspace",
            remedy=f"look at {shlex.quote(posixpath.join(git_dir, 'config'))}: a command may have "
            "written it; shorten it, or remove that repository",
        )  # fmt: skip


def long_settings(path: str, most: int) -> TooMuch:
    return TooMuch(
        f"{named(path)} has more than {most} {SETTINGS}", field="workspace",
        remedy="remove what a command left there, or give another folder as the workspace",
    )  # fmt: skip


def check_includes(git_dir: str, count: int) -> None:
    if count > MOST_INCLUDES:
        raise TooMuch(
            f"the config of {named(git_dir)} includes more than {MOST_INCLUDES} files: these "
            "cannot all be protected",
            field="workspace",
            remedy="a command may have written it: remove what is included, or that repository",
        )


def check_foreign_names(git_dir: str, count: int) -> None:
    if count > MOST_FOREIGN_NAMES:
        raise TooMuch(
            f"{named(git_dir)} has {count} entries or more that are not git's: too many to protect",
            field="workspace",
            remedy="a command may have made them: remove them, or that repository",
        )
