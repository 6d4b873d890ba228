"""All lookups of the policy on the host's files, recorded so that a plan can be reused.

Making a plan takes hundreds of system calls, and the next request often needs the same plan. While
`recording` is active each lookup is recorded; a `Basis` then checks with a few calls whether all of
them would still have the same result.
"""

from __future__ import annotations

import errno
import os
import stat as modes
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from sandboxd.platform.current import files
from sandboxd.platform.path_case import on_disk
from sandboxd.platform.regular_file import read_most
from sandboxd.policy.paths.recording import (
    Fact,
    Filter,
    Recording,
    list_entries,
    listing_of,
    select_entries,
)

# Of a look at what was there a moment ago: others removed it, or a folder above it.
VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)

_T = TypeVar("_T", bound=Hashable)
_notes: ContextVar[Recording | None] = ContextVar("looks at the host's files", default=None)


@contextmanager
def recording() -> Iterator[Recording]:
    notes = Recording()
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def lstat(path: str) -> os.stat_result:
    """What is answered is what is recorded, also if the name is exchanged meanwhile."""
    notes = _notes.get()
    try:
        found = files.lstat(path)
    except OSError:
        if notes is not None:
            notes.beside(path, None)
        raise
    if notes is not None:
        notes.beside(path, found)
    return found


def stat(path: str) -> os.stat_result:
    """Who owns it counts, and for a file only its own ctime tells that this changed."""
    _walked(path)
    found = files.stat(path)
    notes = _notes.get()
    if notes is not None and not modes.S_ISDIR(found.st_mode):
        notes.content(path, found)
    return found


def realpath(path: str, *, strict: bool = False) -> str:
    """The canonical path, as spelled on disk: what is compared as text has one spelling."""
    _walked(path)
    return on_disk(files.realpath(path, strict=strict))


def spelled(path: str) -> str:
    """A path without symlinks, as spelled on disk."""
    if sys.platform == "win32":
        return realpath(path, strict=True)
    return on_disk(path)


def exists(path: str) -> bool:
    _walked(path)
    return files.exists(path)


def isdir(path: str) -> bool:
    _walked(path)
    return files.isdir(path)


def isfile(path: str) -> bool:
    _walked(path)
    return files.isfile(path)


def lexists(path: str) -> bool:
    _noted(path)
    return files.lexists(path)


def islink(path: str) -> bool:
    _noted(path)
    return files.islink(path)


def readlink(path: str) -> str:
    _noted(path)
    return files.readlink(path)


def link_target(path: str) -> str | None:
    """None if it is no link, or none any more."""
    try:
        return readlink(path) if islink(path) else None
    except OSError as error:
        if error.errno not in (*VANISHED, errno.EINVAL):
            raise
        is_torn()
        return None


def expanduser(path: str) -> str:
    return files.expanduser(path)


def access(path: str, mode: int) -> bool:
    """Access lists count too, and only the ctime tells that they changed."""
    notes = _notes.get()
    if notes is not None:
        notes.walk(path)
        try:
            notes.content(path, files.stat(path))
        except OSError:
            return False
    return files.access(path, mode)


def listdir(path: str) -> list[str]:
    return [entry.name for entry in entries(path)]


def entries(path: str) -> list[files.DirEntry]:
    """Of the entries only names and kinds count for the basis."""
    notes = _notes.get()
    place = notes.walk(path) if notes is not None else path
    with _counting(notes):
        listed = list_entries(path)
    if notes is not None:
        notes.listings[place] = listing_of(listed)
    return listed


def select(path: str, wanted: Filter) -> list[files.DirEntry]:
    """The entries that `wanted` accepts; of the others nothing counts for the basis."""
    notes = _notes.get()
    place = notes.walk(path) if notes is not None else path
    with _counting(notes):
        found = select_entries(path, wanted)
    if notes is not None:
        notes.selections[place, wanted] = listing_of(found)
    return found


@contextmanager
def _counting(notes: Recording | None) -> Iterator[None]:
    """A plan that rests on too many entries is not kept."""
    try:
        yield
    except OSError as error:
        if notes is not None and error.errno == errno.E2BIG:
            notes.fleeting = True
        raise


def read(path: str, most: int) -> bytes:
    """The start of a regular file; OSError for anything else. Does not block on a pipe."""
    notes = _notes.get()
    if notes is not None:
        notes.walk(path)
    fd = files.open_regular(path)
    try:
        if notes is not None:
            notes.content(path, os.fstat(fd))
        return read_most(fd, most)
    finally:
        os.close(fd)


def extract(path: str, from_path: Callable[[str], _T]) -> _T:
    """`from_path(path)`: of what is in that file only this value counts for the basis."""
    notes = _notes.get()
    place = notes.walk(path) if notes is not None else path
    value = from_path(path)
    if notes is not None:
        notes.extracts[place, from_path] = value
    return value


def holds_until(moment: float) -> None:
    """Something was seen that is not compared, and is to be looked at again then."""
    notes = _notes.get()
    if notes is not None:
        notes.until = min(notes.until, moment)


def is_torn() -> None:
    """Something changed between two looks: what was recorded is no basis of a plan."""
    notes = _notes.get()
    if notes is not None:
        notes.torn = True


def holds_while(fact: Fact) -> None:
    """The same, until somebody says that it changed."""
    notes = _notes.get()
    if notes is not None and (not notes.facts or notes.facts[-1] is not fact):
        notes.facts.append(fact)


def rests_on(path: str) -> None:
    """Record a file that a library reads."""
    notes = _notes.get()
    if notes is not None:
        try:
            notes.content(path, files.stat(path))
        except OSError:
            notes.walk(path)


def _noted(path: str) -> None:
    notes = _notes.get()
    if notes is not None:
        notes.beside(path)


def _walked(path: str) -> None:
    notes = _notes.get()
    if notes is not None:
        notes.walk(path)
