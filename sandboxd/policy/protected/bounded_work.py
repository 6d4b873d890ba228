"""How much of a workspace's repositories one plan looks at. A command can leave any number of them,
with settings of any length, and the next request plans with what it left."""

from __future__ import annotations

import posixpath
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sandboxd_proto.errors import PathDenied

MOST_PATHS = 65_536  # a repository has about two hundred
MOST_CONFIG_BYTES = 8 << 20
# Settings that name programs, in one git dir: each may lead to many paths.
MOST_PROGRAMS = 512
MOST_IN_A_LINE = 8192  # characters of a command line in a setting
# For the search of distant folders, of this thread's CPU time and of any.
MOST_SEARCH_CPU_S = 1.0
MOST_SEARCH_S = 3.0


class _Work:
    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        self.paths = 0
        self.config_bytes = 0
        self.deadlines: tuple[float, float] | None = None


_work: ContextVar[_Work | None] = ContextVar("work for one workspace", default=None)


@contextmanager
def for_workspace(path: str) -> Iterator[None]:
    token = _work.set(_Work(path))
    try:
        yield
    finally:
        _work.reset(token)


def count_path() -> None:
    work = _work.get()
    if work is not None:
        work.paths += 1
        if work.paths > MOST_PATHS:
            raise _too_much(work.workspace, f"more than {MOST_PATHS} paths to protect")


def count_config(size: int) -> None:
    work = _work.get()
    if work is not None:
        work.config_bytes += size
        if work.config_bytes > MOST_CONFIG_BYTES:
            raise _too_much(work.workspace, f"more than {MOST_CONFIG_BYTES >> 20} MiB of settings")


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
        raise PathDenied(
            f"the config of {git_dir} {what}: these cannot all be protected", field="workspace",
            remedy=f"look at {shlex.quote(posixpath.join(git_dir, 'config'))}: a command may have "
            "written it; shorten it, or remove that repository",
        )  # fmt: skip


def _too_much(workspace: str, what: str) -> PathDenied:
    return PathDenied(
        f"the git repositories in {workspace} have {what}", field="workspace",
        remedy="give a folder with fewer of them as the workspace, or remove repositories that a "
        "command left there",
    )  # fmt: skip
