"""Undo forbidden changes: what a command made is moved to a folder in the writable root.

The same root, because a rename inside one file system is atomic and loses nothing; their owner can
put them back (`sandboxctl kept`). One folder holds those of all runs, each run in a subfolder of
its own. Files there have no effect: names lose their dots, and git ignores the folder. The name of
an entry is its path, percent-encoded.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from sandboxd.linux.birth_time import birth_ns
from sandboxd.linux.removal import remove_at
from sandboxd.platform.current import files
from sandboxd.platform.open_flags import OPEN_FOLDER, PRIVATE
from sandboxd.policy.paths.within import is_below
from sandboxd.posix.descriptors import give_to, path_of
from sandboxd.workspace_guard import snapshot
from sandboxd.workspace_guard.dirfd import Entry, enter, find, look, make_accessible, nearest
from sandboxd.workspace_guard.quarantine.entry_names import entry_name
from sandboxd.workspace_guard.run_clock import TICK_NS
from sandboxd.workspace_guard.snapshot import Node
from sandboxd_proto.locations import KEPT_FOLDER

_RENAME_NOREPLACE = 1
_FULL = (errno.ENOSPC, errno.EDQUOT)
_libc = ctypes.CDLL(None, use_errno=True)


class Moved(msgspec.Struct, frozen=True):
    """`moved_to` is None when it could not be moved: `error` says why, and it is still there."""

    path: str
    moved_to: str | None
    error: str = ""


class Quarantine:
    """One run's folder below an open root; made when the first thing is moved."""

    def __init__(self, root: int, root_path: str) -> None:
        self._root = root
        self._root_path = root_path
        self._name = ""
        self._fd: int | None = None
        self._last: tuple[int, str] | None = None
        self._count = 0

    def take(self, entry: Entry) -> Moved:
        try:
            folder = self._folder()
            self._count += 1
            name = f"{self._count}-{self._inert(entry)}"
            _move(entry, folder, name)
        except FileNotFoundError as error:
            return Moved(entry.path, None, os.strerror(error.errno or 0))
        except OSError:
            return self._take_without_folder(entry)
        self._last = folder, name
        return Moved(entry.path, os.path.join(self._root_path, self._name, name))

    def make_folder_for(self, entry: Entry) -> tuple[int, str]:
        """An open, empty folder for what is in the entry, and its path."""
        folder = self._folder()
        self._count += 1
        name = f"{self._count}-{self._inert(entry)}"
        made = make_folder(folder, name, os.fstat(self._root))
        return made, os.path.join(self._root_path, self._name, name)

    def discard_last(self) -> None:
        """For the room that it takes on a full disk."""
        if self._last is not None:
            folder, name = self._last
            self._last = None
            remove_at(folder, name)

    def _take_without_folder(self, entry: Entry) -> Moved:
        """The disk is full, or the command has prepared the folder (by an access list, encryption
        or a volume of its own) so that nothing can be moved to it: it gets an inert name in the
        root. What cannot be moved there either is removed: it never stays."""
        name = f"{KEPT_FOLDER}-{secrets.token_hex(6)}-{self._inert(entry)}"
        try:
            _move(entry, self._root, name)
            self._last = self._root, name
            return Moved(entry.path, os.path.join(self._root_path, name))
        except OSError as error:
            is_gone = remove_at(entry.parent, entry.name)
            return Moved(entry.path, None, "" if is_gone else os.strerror(error.errno or 0))

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _folder(self) -> int:
        if self._fd is None:
            owner = os.fstat(self._root)
            token = secrets.token_hex(6)
            try:
                self._fd = self._shared(token, owner)
                self._name = os.path.join(KEPT_FOLDER, token)
            except OSError:
                # The command put something else at the path of the shared folder.
                self._name = f"{KEPT_FOLDER}-{token}"
                self._fd = make_folder(self._root, self._name, owner)
                _ignore(self._fd, owner)
        return self._fd

    def _shared(self, token: str, owner: os.stat_result) -> int:
        """This run's subfolder of the folder that all runs share."""
        try:
            parent = make_folder(self._root, KEPT_FOLDER, owner)
        except FileExistsError:
            parent = os.open(KEPT_FOLDER, OPEN_FOLDER, dir_fd=self._root)
        try:
            if os.fstat(parent).st_uid != owner.st_uid:
                raise PermissionError(errno.EPERM, "a folder of another user")
            _ignore(parent, owner)
            return make_folder(parent, token, owner)
        finally:
            os.close(parent)

    def _inert(self, entry: Entry) -> str:
        return entry_name(os.path.relpath(entry.path, self._root_path))


def make_folder(parent: int, name: str, owner: os.stat_result) -> int:
    """A new folder of the owner, open."""
    before_ns = time.time_ns() - TICK_NS
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except PermissionError:
        make_accessible(parent)
        os.mkdir(name, 0o700, dir_fd=parent)
    made = os.open(name, OPEN_FOLDER, dir_fd=parent)
    try:
        if _is_given(owner):
            _check_new(made, before_ns)
        _give(made, owner)
    except BaseException:
        os.close(made)
        raise
    return made


def _check_new(made: int, before_ns: int) -> None:
    """The command may have put a folder of root's at the name meanwhile, to own it."""
    born_ns = birth_ns(made)
    with os.scandir(made) as entries:
        is_empty = next(entries, None) is None
    if not is_empty or (born_ns is not None and born_ns < before_ns):
        raise PermissionError(errno.EPERM, "another folder was put in its place")


def _ignore(folder: int, owner: os.stat_result) -> None:
    """Git ignores the folder, by a file of its own. One that exists already is replaced.

    A full disk has no room for it: git shows the folder then.
    """
    draft = f".gitignore-{secrets.token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PRIVATE
    try:
        ignore = os.open(draft, flags, 0o600, dir_fd=folder)
        with os.fdopen(ignore, "w") as file:
            _give(ignore, owner)
            file.write("*\n")
        os.rename(draft, ".gitignore", src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)


def _give(fd: int, owner: os.stat_result) -> None:
    """A daemon of root must not leave files of root in a user's workspace."""
    if _is_given(owner):
        give_to(fd, owner.st_uid, owner.st_gid)


def _is_given(owner: os.stat_result) -> bool:
    return files.is_root() and owner.st_uid != 0


def _move(entry: Entry, folder: int, name: str) -> None:
    try:
        rename(entry.parent, entry.name, folder, name)
    except PermissionError:
        # The folder's rights, or those of a moved folder itself, were taken away.
        make_accessible(entry.parent)
        if entry.is_dir:
            inner = enter(entry.parent, entry.name)
            if inner is not None:
                try:
                    make_accessible(inner)
                finally:
                    os.close(inner)
        rename(entry.parent, entry.name, folder, name)


def rename(from_dir: int, from_name: str, to_dir: int, to_name: str) -> None:
    source, target = os.fsencode(from_name), os.fsencode(to_name)
    if _libc.renameat2(from_dir, source, to_dir, target, _RENAME_NOREPLACE) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(number, os.strerror(number))
    # The file system does not support the flag; the target is in a new folder of our own.
    os.rename(from_name, to_name, src_dir_fd=from_dir, dst_dir_fd=to_dir)


Undo = Callable[[Quarantine], Moved]


class Offence(msgspec.Struct, frozen=True):
    """`ends`: it could run code on the host at once, so the command is ended.

    `why`: for the log.
    """

    path: str
    ends: bool
    undo: Undo
    why: str = ""


class JudgedFile(Protocol):
    """A folder that was remembered before the run, and is judged during and after it."""

    def look(self, *, finished: bool) -> list[Offence]: ...

    @property
    def unchanged(self) -> bool:
        """Whether files that can be written unnoticed by inotify are what they were."""
        ...

    @property
    def needs_thread(self) -> bool:
        """Whether the next look takes too long for the event loop."""
        ...

    def close(self) -> None: ...


def move_aside(folder: int, name: str, path: str) -> Undo:
    def undo(quarantine: Quarantine) -> Moved:
        entry = look(folder, name, path)
        return quarantine.take(entry) if entry is not None else Moved(path, None, "it is gone")

    return undo


def put_back(folder: int, name: str, path: str, before: Node | None) -> Undo:
    """Move the entry aside and write the earlier content, if it is known."""

    def undo(quarantine: Quarantine) -> Moved:
        entry = look(folder, name, path)
        moved = quarantine.take(entry) if entry is not None else Moved(path, None)
        if before is not None and before.whole and (moved.moved_to or entry is None):
            try:
                snapshot.write(folder, name, before)
            except OSError as error:
                if error.errno in _FULL:
                    return _write_over(folder, name, path, before, quarantine)
                return Moved(path, moved.moved_to, os.strerror(error.errno or 0))
        return moved

    return undo


def _write_over(folder: int, name: str, path: str, before: Node, quarantine: Quarantine) -> Moved:
    """On a full disk what was moved aside goes, to make room for what was there before."""
    try:
        quarantine.discard_last()
        snapshot.write(folder, name, before)
    except (OSError, RecursionError) as error:
        return Moved(path, None, str(error))
    return Moved(path, None)


def put_back_below(root: int, root_path: str, path: str, before: Node | None) -> Undo:
    """`put_back` for a path whose folder is found when it is undone."""

    def undo(quarantine: Quarantine) -> Moved:
        folder, name, is_parent = nearest(root, root_path, path)
        try:
            if not is_parent:
                return Moved(path, None, "its folder is gone")
            return put_back(folder, name, path, before)(quarantine)
        finally:
            os.close(folder)

    return undo


def bring_back(held: int, root: int, root_path: str, path: str) -> Undo:
    """Move the folder behind the descriptor `held` to `path` again, wherever it is now."""

    def undo(quarantine: Quarantine) -> Moved:
        moved = Moved(path, None)
        with find(root, root_path, path) as entry:
            if entry is not None and not _is_same(entry, held):
                moved = quarantine.take(entry)
        try:
            now = path_of(held)
        except OSError as error:  # it is too long
            return Moved(path, moved.moved_to, os.strerror(error.errno or 0))
        if not is_below(now, root_path) or now == path:
            return moved
        with find(root, root_path, now) as entry:
            if entry is None or entry.path != now or not _is_same(entry, held):
                return moved
            folder, name, is_parent = nearest(root, root_path, path)
            try:
                if is_parent:
                    rename(entry.parent, entry.name, folder, name)
            except OSError as error:
                return Moved(path, moved.moved_to, os.strerror(error.errno or 0))
            finally:
                os.close(folder)
        return moved

    return undo


def _is_same(entry: Entry, held: int) -> bool:
    found = os.fstat(held)
    return (entry.status.st_dev, entry.status.st_ino) == (found.st_dev, found.st_ino)
