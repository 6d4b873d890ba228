"""Repositories that an index names: `git status` enters each of them, wherever it lies.

An index changes with every `git add`. Only the links in it count for a plan, so that a plan stays
valid while other entries come and go.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from sandboxd.platform.current import files
from sandboxd.platform.regular_file import read_regular
from sandboxd.policy.display_names import named
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.within import is_below, within
from sandboxd.policy.protected import closed_ways, git_config, git_index_parser
from sandboxd.policy.protected.protect import LONGEST_PATH

MOST_LINKS = 256
MOST_CPU_S = 0.25
_MOST_SEARCHED = 64 << 20  # for the mode of a link: takes 20 ms
_MOST_PARSED = 8 << 20  # 80,000 entries: takes 0.1 s
_MOST_POINTER = 1 << 20

Links = tuple[str, ...]


@dataclass(slots=True)
class GitLinks:
    """`folders` have a `.git`, `empty` ones have none yet."""

    folders: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    warnings: tuple[str, ...] = ()


def find(workspace: str, trees: Iterable[tuple[str, str]]) -> GitLinks:
    """`trees`: folders with files of a repository, each with its git dir. Goes on from there."""
    found = GitLinks()
    until_cpu = time.thread_time() + MOST_CPU_S
    pending = deque(trees)
    seen = {tree for tree, _ in pending}
    while pending:
        tree, git_dir = pending.popleft()
        index = posixpath.join(git_dir, "index")
        links = recording_fs.extract(index, links_of)
        if not links and files.exists(index) and not files.access(index, os.R_OK):
            closed_ways.refuse(index)
        if links is None:
            found.warnings = (_unread(git_dir),)
            continue
        for link in links:
            folder = recording_fs.realpath(posixpath.join(tree, link))
            if folder in seen or not is_below(folder, workspace):
                continue
            if len(seen) >= MOST_LINKS or time.thread_time() > until_cpu:
                found.warnings = (_incomplete(git_dir),)
                return found
            seen.add(folder)
            inner = git_dir_of(folder)
            if inner is None:
                found.empty.append(folder)
                continue
            found.folders.append(folder)
            if within(inner, workspace):
                pending.append((folder, inner))
    return found


def git_dir_of(folder: str) -> str | None:
    """Where the `.git` of a folder leads, whatever it is; None if there is none."""
    said = said_git_dir(folder)
    return recording_fs.realpath(said) if said is not None else None


def said_git_dir(folder: str) -> str | None:
    """The same as the `.git` spells it."""
    pointer = posixpath.join(folder, ".git")
    if not recording_fs.lexists(pointer):
        return None
    if recording_fs.isfile(pointer):
        try:
            said = recording_fs.read(pointer, _MOST_POINTER)
        except PermissionError:
            closed_ways.refuse(pointer)
            said = b""
        except OSError:
            said = b""
        if said.startswith(b"gitdir: "):
            target = os.fsdecode(said.rstrip(b"\r\n")[8:].partition(b"\0")[0])
            if len(target) <= LONGEST_PATH:  # otherwise it leads git nowhere
                pointer = posixpath.join(folder, target)
    return pointer


def links_of(index: str) -> Links | None:
    """The paths that are links in the index file; None if it is too large or cannot be read."""
    try:
        data = read_regular(index, _MOST_SEARCHED + 1)
    except OSError:
        return ()
    folder = posixpath.dirname(index)
    if len(data) > _MOST_SEARCHED:
        return None
    if git_index_parser.LINK_MODE not in data and not git_index_parser.may_be_split(data):
        return ()
    if len(data) > _MOST_PARSED:
        return None
    try:
        found = git_index_parser.gitlinks(
            data, _hash_bytes(folder), lambda name: _shared(folder, name)
        )
    except git_index_parser.GitIndexError:
        return None
    return tuple(dict.fromkeys(map(os.fsdecode, found)))


def _shared(folder: str, name: bytes) -> bytes | None:
    try:
        return read_regular(f"{folder}/sharedindex.{name.decode()}", _MOST_PARSED)
    except OSError:
        return None


def _hash_bytes(git_dir: str) -> int:
    for name in git_config.PLACES:
        try:
            return git_config.hash_bytes(read_regular(f"{git_dir}/{name}", git_config.MAX_BYTES))
        except OSError:
            continue
    return 20


def _incomplete(git_dir: str) -> str:
    return (
        f"the index in {named(git_dir)} leads into more git repositories than are protected: "
        "hooks and settings of the others are not"
    )


def _unread(git_dir: str) -> str:
    return (
        f"the index in {named(git_dir)} is too large, or cannot be read: hooks and settings of "
        "the git repositories that it leads into may not be protected"
    )
