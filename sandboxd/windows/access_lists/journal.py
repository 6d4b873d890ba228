"""What the daemon changed on access lists, written down before it is changed.

One file for a daemon, one JSON line for a record: an entry that is about to be written, or one that
was taken back. A daemon that was killed leaves its file; the next start takes everything in it back
in reverse order. A path that is gone needs nothing. What cannot be taken back stays in the file. A
file that cannot be read is kept aside for a person.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import msgspec
from msgspec.structs import asdict

log = logging.getLogger(__name__)
SUFFIX = ".journal"
ASIDE = ".unreadable"


class Change(msgspec.Struct, frozen=True):
    """One change. `prior`: the entries of this SID that the path had before, as the store gives
    them. kind "profile": `path` is the name of an AppContainer profile."""

    number: int
    kind: Literal["acl", "profile"]
    path: str
    sid: str = ""
    file_id: str = ""
    prior: tuple[str, ...] = ()


class Owner(msgspec.Struct, frozen=True):
    """A process: pids are used again, so the time of its creation counts too."""

    pid: int
    created: int


class Store(Protocol):
    """The system's access lists and profiles, as far as undoing needs them."""

    def file_id(self, path: str) -> str | None:
        """Which file is at `path` now; None if none is."""

    def restore(self, path: str, sid: str, prior: tuple[str, ...]) -> None:
        """Remove every entry of `sid`, and write the prior ones back."""

    def delete_profile(self, name: str) -> None: ...

    def locked(self, path: str) -> AbstractContextManager[None]:
        """No other daemon of this user changes the path's list meanwhile. OSError: one does."""


class Journal:
    """Opened for the life of a daemon. Sandboxes are opened in threads: any of them may call it."""

    def __init__(self, folder: str, owner: Owner) -> None:
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, f"{owner.pid}-{owner.created}{SUFFIX}")
        self._changes: dict[int, Change] = {}
        self._next = 1
        self._lock = threading.Lock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._fd = os.open(self.path, flags, 0o600)
        self._write({"owner": asdict(owner)})

    def _write(self, record: dict[str, Any]) -> None:
        """On the disk when it returns. A line that was written in part is taken back."""
        line = json.dumps(record).encode() + b"\n"
        start = os.lseek(self._fd, 0, os.SEEK_CUR)
        try:
            if os.write(self._fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, start)
            os.lseek(self._fd, start, os.SEEK_SET)
            raise

    def announce(
        self, kind: Literal["acl", "profile"], path: str, *, sid: str = "", file_id: str = "",
        prior: tuple[str, ...] = (),
    ) -> Change:  # fmt: skip
        """Before the change is made."""
        with self._lock:
            change = Change(self._next, kind, path, sid, file_id, prior)
            self._next += 1
            self._write({"change": asdict(change)})
            self._changes[change.number] = change
        return change

    def undo(self, change: Change, store: Store) -> None:
        """Take it back, and note that. OSError: it stays in the journal."""
        take_back(change, store)
        with self._lock:
            self._write({"undone": change.number})
            self._changes.pop(change.number, None)

    def undo_all(self, store: Store) -> None:
        for change in sorted(self._changes.values(), key=lambda one: -one.number):
            try:
                self.undo(change, store)
            except OSError as error:
                log.error("the access list of %s could not be restored: %s", change.path, error)

    def close(self) -> None:
        """Removes the file where nothing is left to take back."""
        os.close(self._fd)
        if not self._changes:
            os.unlink(self.path)


def take_back(change: Change, store: Store) -> None:
    if change.kind == "profile":
        store.delete_profile(change.path)
        return
    with store.locked(change.path):
        found = store.file_id(change.path)
        if found is None or (change.file_id and found != change.file_id):
            return  # it is gone, and its access list with it
        store.restore(change.path, change.sid, change.prior)


def recover(folder: str, alive: Callable[[Owner], bool], store: Store) -> list[str]:
    """Take back what dead daemons left. Answers the journals that could not be emptied."""
    left: list[str] = []
    for path in _journals(folder):
        try:
            owner, changes = read(path)
        except ValueError as error:
            log.error("the journal %s cannot be read, and is kept aside: %s", path, error)
            os.replace(path, path + ASIDE)
            left.append(path + ASIDE)
            continue
        if alive(owner):
            continue
        if _recover_one(path, owner, changes, store):
            left.append(path)
    return left


def _recover_one(path: str, owner: Owner, changes: list[Change], store: Store) -> bool:
    """Whether something is left that could not be taken back."""
    left: list[Change] = []
    for change in reversed(changes):
        try:
            take_back(change, store)
        except OSError as error:
            log.error("the access list of %s could not be restored: %s", change.path, error)
            left.append(change)
    if not left:
        os.unlink(path)
        return False
    _rewrite(path, owner, left[::-1])
    return True


def _rewrite(path: str, owner: Owner, changes: list[Change]) -> None:
    """Replaced as a whole: a crash leaves the old file, and undoing twice changes nothing."""
    records = [{"owner": asdict(owner)}, *({"change": asdict(change)} for change in changes)]
    scratch = f"{path}.new"
    with open(scratch, "wb") as file:
        file.write(b"".join(json.dumps(record).encode() + b"\n" for record in records))
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def _journals(folder: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    yield from (os.path.join(folder, name) for name in names if name.endswith(SUFFIX))


def read(path: str) -> tuple[Owner, list[Change]]:
    """What is left to be taken back. A last line that was cut off was not acted upon.

    ValueError for anything else that is not a journal.
    """
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    lines.pop()  # empty, or a line whose writing was interrupted
    if not lines:
        return Owner(0, 0), []
    try:
        owner = Owner(**json.loads(lines[0])["owner"])
        changes: dict[int, Change] = {}
        for line in lines[1:]:
            record = json.loads(line)
            if "undone" in record:
                changes.pop(record["undone"], None)
            else:
                fields = record["change"]
                change = Change(**{**fields, "prior": tuple(fields["prior"])})
                changes[change.number] = change
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(str(error)) from None
    return owner, [changes[number] for number in sorted(changes)]
