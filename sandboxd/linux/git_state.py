"""Whether git state that a command left behind would run code: read by descriptor, as data."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter

from sandboxd.linux.descent import enter, read_file
from sandboxd.policy import git_config
from sandboxd.policy.protected_data import GIT_DIR, REBASE_STATE

_TODO = ("git-rebase-todo", "todo")
_MOST_TODO_BYTES = 4 << 20
_MOST_SAMPLES = 256
# Git skips blanks before a command, and knows `x` as `exec`.
_EXEC = re.compile(rb"^[ \t]*(?:exec|x)(?:[ \t].*)?$", re.MULTILINE)

ExecLines = Counter[bytes]


def exec_lines(folder: int) -> ExecLines | None:
    """The exec lines in the todo lists of an unfinished rebase; None if they cannot be told."""
    found: ExecLines = Counter()
    for name in _TODO:
        try:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        data = read_file(folder, name, _MOST_TODO_BYTES)
        if data is None:
            return None
        found.update(_EXEC.findall(data.replace(b"\r", b"\n")))
    return found


def rebase_runs_code(parent: int, name: str, before: ExecLines) -> bool:
    """Whether the state `name`, if it is there, has exec lines that were not there before."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return stat.S_ISLNK(status.st_mode)
    folder = enter(parent, name)
    if folder is None:
        return True
    try:
        lines = exec_lines(folder)
    except OSError:
        return True
    finally:
        os.close(folder)
    return lines is None or bool(lines - before)


def open_doors(git_dir: int, *, finished: bool) -> list[str]:
    """What in a git dir that a command made would run code.

    What `git init` and `git clone` write is harmless: plain settings, and hooks that are samples.
    `finished`: the command is over, so an unfinished rebase is judged too.
    """
    found = [name for name in (*GIT_DIR, "modules") if _is_open(git_dir, name)]
    if finished:
        found += [n for n in REBASE_STATE if rebase_runs_code(git_dir, n, Counter())]
    return found


def _is_open(git_dir: int, name: str) -> bool:
    try:
        status = os.stat(name, dir_fd=git_dir, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if name == "config":
        data = read_file(git_dir, name, git_config.MAX_BYTES)
        return data is None or not git_config.harmless(data)
    if name == "hooks" and stat.S_ISDIR(status.st_mode):
        return not _only_samples(git_dir)
    return True


def _only_samples(git_dir: int) -> bool:
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open("hooks", flags, dir_fd=git_dir)
    except OSError:
        return False
    try:
        with os.scandir(fd) as entries:
            names = [(e.name, e.is_file(follow_symlinks=False)) for e in entries]
    finally:
        os.close(fd)
    return len(names) <= _MOST_SAMPLES and all(
        is_file and name.endswith(".sample") for name, is_file in names
    )
