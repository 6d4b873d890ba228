"""Write what a sandbox changed into the host's folders, as the command itself could have.

Runs in a thread, as the user that the command would run as, while the workspace's guard watches.
No link is followed. A file is written in a folder of our own and then moved into place; one that
changed on the host since it was sent is never overwritten: the sandbox's version is kept beside.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from sandboxd.backends.opensandbox.copies.entries import (
    MODE_BITS,
    Copied,
    CopyEntry,
    Stamp,
    kind_of,
)
from sandboxd.backends.opensandbox.copies.exchange import exchange, place_new
from sandboxd.backends.opensandbox.copies.packing import STAGING
from sandboxd.backends.opensandbox.copies.received import Archive, ReceivedEntry
from sandboxd.backends.opensandbox.copies.scope import CopyScope
from sandboxd.linux.openat import changed_error
from sandboxd.policy.plan import Grant, Identity
from sandboxd.workspace_guard import dirfd
from sandboxd.workspace_guard.quarantine.quarantine import Quarantine

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHANGED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR)


class CopyConflict(Exception):
    """The host has something else there than the sandbox was given."""


@dataclass(slots=True)
class Applied:
    """`conflicts`, `protected`: paths that stayed as they are, and where the sandbox's version is.
    `failed`: what could not be written, and why."""

    changed: int = 0
    conflicts: list[tuple[str, str | None]] = field(default_factory=list)
    protected: list[tuple[str, str | None]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)


def apply(archive: Archive, scope: CopyScope, known: dict[str, Copied]) -> Applied:
    """`known` is what the sandbox was given, and becomes what it has and the host has too."""
    done = Applied()
    for grant in scope.grants:
        if grant.access != "write":
            continue
        changes = _changes(grant, scope, archive.found, known)
        if not any(changes):
            continue
        try:
            with _Target(grant, archive, scope, known, done) as target:
                removed, made = changes
                for path in sorted(removed, reverse=True):
                    target.attempt(path, None)
                for path in sorted(made):
                    target.attempt(path, archive.found[path])
        except OSError as error:  # no folder of our own can be made there
            done.failed.append((grant.path, os.strerror(error.errno or 0)))
    return done


def _changes(
    grant: Grant, scope: CopyScope, found: Mapping[str, ReceivedEntry], known: Mapping[str, Copied]
) -> tuple[set[str], set[str]]:
    """(paths to remove, paths to write). One that is of another kind now is in both."""
    removed, made = set(), set()
    for path, arrived in found.items():
        before = known.get(path)
        entry = before.entry if before is not None else None
        if arrived.entry != entry and scope.writable_root(path) is grant:
            made.add(path)
            if entry is not None and entry.kind != arrived.entry.kind:
                removed.add(path)
    for path in known:
        if path not in found and scope.writable_root(path) is grant:
            removed.add(path)
    return removed, made


class _Target:
    """One writable grant of the host."""

    def __init__(
        self, grant: Grant, archive: Archive, scope: CopyScope, known: dict[str, Copied],
        done: Applied,
    ) -> None:  # fmt: skip
        self._grant = grant
        self._archive = archive
        self._scope = scope
        self._known = known
        self._done = done
        self._staging_name = STAGING + secrets.token_hex(8)

    def __enter__(self) -> _Target:
        path = self._grant.path
        at = path if self._grant.identity.is_dir else os.path.dirname(path)
        self._root_path = at
        self._root = dirfd.open_planned(at)
        if self._grant.identity.is_dir and Identity.of(os.fstat(self._root)) != (
            self._grant.identity
        ):
            os.close(self._root)
            raise changed_error(path, "it was replaced")
        os.mkdir(self._staging_name, 0o700, dir_fd=self._root)
        self._staging = os.open(self._staging_name, _FOLDER, dir_fd=self._root)
        self._kept = Quarantine(self._root, self._root_path)
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()
        os.close(self._staging)
        with suppress(OSError):
            shutil.rmtree(self._staging_name, dir_fd=self._root)
        os.close(self._root)

    def attempt(self, path: str, arrived: ReceivedEntry | None) -> None:
        """One change. None: it was removed."""
        protected = self._scope.kept_from_change(path)
        if protected is not None:
            self._refuse(self._done.protected, path, arrived)
            return
        try:
            with self._parent(path) as (folder, name):
                if arrived is None:
                    self._remove(folder, name, path)
                else:
                    self._write(folder, name, path, arrived)
        except CopyConflict:
            self._refuse(self._done.conflicts, path, arrived)
        except OSError as error:
            if error.errno in _CHANGED:
                self._refuse(self._done.conflicts, path, arrived)
            else:
                self._done.failed.append((path, os.strerror(error.errno or 0)))
                self._differs(path, arrived)

    def _refuse(
        self, where: list[tuple[str, str | None]], path: str, arrived: ReceivedEntry | None
    ) -> None:
        """The host stays as it is. The sandbox's version of a file is kept."""
        moved_to = None
        if arrived is not None and arrived.entry.kind == "file":
            with suppress(OSError):
                name = self._staged(arrived)
                entry = dirfd.look(self._staging, name, path)
                moved_to = self._kept.take(entry).moved_to if entry is not None else None
        if arrived is None or arrived.entry.kind != "dir":
            where.append((path, moved_to))
        self._differs(path, arrived)

    def _differs(self, path: str, arrived: ReceivedEntry | None) -> None:
        """The sandbox has something else there: it is sent again before the next command."""
        if arrived is None:
            self._known.pop(path, None)
        else:
            self._known[path] = Copied(arrived.entry, None)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        folder, name, is_parent = dirfd.nearest(self._root, self._root_path, path)
        try:
            if not is_parent:
                raise CopyConflict
            yield folder, name
        finally:
            os.close(folder)

    # removing

    def _remove(self, folder: int, name: str, path: str) -> None:
        before = self._known.get(path)
        assert before is not None, "only what was sent is removed"
        if before.entry.kind == "dir":
            self._remove_folder(folder, name, path)
        else:
            self._check(folder, name, before)
            draft = f"removed-{secrets.token_hex(8)}"
            os.rename(name, draft, src_dir_fd=folder, dst_dir_fd=self._staging)
            self._confirm(folder, name, draft, before)
            os.unlink(draft, dir_fd=self._staging)
        self._known.pop(path, None)
        self._done.changed += 1

    def _remove_folder(self, folder: int, name: str, path: str) -> None:
        try:
            os.rmdir(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno == errno.ENOTEMPTY and self._scope.holds_protected(path):
                raise CopyConflict from None
            raise

    # writing

    def _write(self, folder: int, name: str, path: str, arrived: ReceivedEntry) -> None:
        before = self._known.get(path)
        if arrived.entry.kind == "dir":
            self._write_folder(folder, name, arrived, before)
        elif path == self._grant.path:
            self._overwrite(folder, name, arrived, before)
        elif before is None:
            self._place(folder, name, arrived)
        else:
            self._replace(folder, name, arrived, before)
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        self._known[path] = Copied(arrived.entry, Stamp.of(found))
        self._done.changed += 1

    def _write_folder(
        self, folder: int, name: str, arrived: ReceivedEntry, before: Copied | None
    ) -> None:
        if before is None:
            os.mkdir(name, 0o700, dir_fd=folder)
        made = os.open(name, _FOLDER, dir_fd=folder)
        try:
            kept = 0 if before is None else stat.S_IMODE(os.fstat(made).st_mode) & ~MODE_BITS
            os.fchmod(made, arrived.entry.mode | kept | stat.S_IRWXU)
        finally:
            os.close(made)

    def _place(self, folder: int, name: str, arrived: ReceivedEntry) -> None:
        if arrived.entry.kind == "link":
            os.symlink(arrived.entry.content, name, dir_fd=folder)
            return
        place_new(self._staging, self._staged(arrived), folder, name)

    def _replace(self, folder: int, name: str, arrived: ReceivedEntry, before: Copied) -> None:
        self._check(folder, name, before)
        draft = self._staged(arrived)
        exchange(self._staging, draft, folder, name)
        self._confirm(folder, name, draft, before, swapped=True)
        os.unlink(draft, dir_fd=self._staging)

    def _overwrite(
        self, folder: int, name: str, arrived: ReceivedEntry, before: Copied | None
    ) -> None:
        """A grant that is a file: its folder is not granted, so it is written in place."""
        if before is None:
            raise CopyConflict
        self._check(folder, name, before)
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            if Identity.of(os.fstat(fd)) != self._grant.identity:
                raise CopyConflict
            self._copy_content(file.fileno(), arrived)
            os.ftruncate(fd, arrived.size)

    def _staged(self, arrived: ReceivedEntry) -> str:
        """A file or link in our folder, as it is to be."""
        name = f"new-{secrets.token_hex(8)}"
        if arrived.entry.kind == "link":
            os.symlink(arrived.entry.content, name, dir_fd=self._staging)
            return name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=self._staging)
        try:
            self._copy_content(fd, arrived)
            os.fchmod(fd, arrived.entry.mode & MODE_BITS)
            with suppress(OSError, OverflowError):
                os.utime(fd, (arrived.mtime, arrived.mtime))
        finally:
            os.close(fd)
        return name

    def _copy_content(self, fd: int, arrived: ReceivedEntry) -> None:
        source = self._archive.file.fileno()
        for at, length in self._archive.chunks(arrived):
            view = memoryview(os.pread(source, length, at))
            while view:
                view = view[os.write(fd, view) :]

    # what the host has

    def _check(self, folder: int, name: str, before: Copied) -> None:
        """CopyConflict unless the host has what the sandbox was given."""
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise CopyConflict from None
        if before.stamp is not None and Stamp.of(found) == before.stamp:
            return
        if _entry(folder, name, found) != before.entry:
            raise CopyConflict

    def _confirm(
        self, folder: int, name: str, draft: str, before: Copied, *, swapped: bool = False
    ) -> None:
        """What was moved out of its place is what was looked at; otherwise it goes back."""
        found = os.stat(draft, dir_fd=self._staging, follow_symlinks=False)
        same = before.stamp is not None and before.stamp.is_same_content(found)
        if same or _entry(self._staging, draft, found) == before.entry:
            return
        if swapped:
            exchange(self._staging, draft, folder, name)
            os.unlink(draft, dir_fd=self._staging)
        else:
            place_new(self._staging, draft, folder, name)
        raise CopyConflict


def _entry(folder: int, name: str, found: os.stat_result) -> CopyEntry | None:
    """What is there, with its content; None for what is not copied."""
    kind, mode = kind_of(found.st_mode), found.st_mode & MODE_BITS
    if kind == "link":
        return CopyEntry("link", 0, os.readlink(name, dir_fd=folder))
    if kind != "file":
        return CopyEntry("dir", mode) if kind == "dir" else None
    fd = dirfd.readable(folder, name)
    with os.fdopen(fd, "rb") as file:
        return CopyEntry("file", mode, hashlib.file_digest(file, "sha256").hexdigest())
