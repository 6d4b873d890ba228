"""Pack what changed in the granted folders since it was sent last: a tar archive and a list.

Runs in a thread, as the user that the command would run as. The folders may be changed meanwhile:
every name is opened by descriptor, no link is followed, and a file that changes while it is read
counts as changed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

import msgspec

from sandboxd.backends.opensandbox.copies.entries import (
    MODE_BITS,
    Copied,
    CopyEntry,
    Stamp,
    kind_of,
)
from sandboxd.backends.opensandbox.copies.scope import CopyScope
from sandboxd.linux.openat import changed_error
from sandboxd.policy.plan import Grant, Identity
from sandboxd.workspace_guard.dirfd import open_root
from sandboxd_proto.errors import PolicyNotSupported

MAX_DEPTH = 200
STAGING = ".sandboxd-copy-"  # a folder of ours in a writable root, while changes are applied
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class CopyLimits(msgspec.Struct, frozen=True):
    """Of everything that a sandbox has, in either direction."""

    bytes: int
    files: int


@dataclass(slots=True)
class Packed:
    """`gone`: what the sandbox has and must not have. `skipped`: what could not be read."""

    now: dict[str, Copied] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    files: int = 0


def pack(
    scope: CopyScope, before: Mapping[str, Copied], limits: CopyLimits, out: BinaryIO
) -> Packed:
    """PolicyNotSupported above a limit, PathDenied for a grant that was replaced meanwhile."""
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as tar:
        packer = _Packer(scope, before, limits, tar)
        for grant in sorted(scope.grants):
            packer.add_grant(grant)
        for link in scope.links:
            packer.add_link(link.path, link.target)
    done = packer.done
    kept_kind = {path: one.entry.kind for path, one in done.now.items()}
    changed = [path for path, one in before.items() if kept_kind.get(path) != one.entry.kind]
    done.gone = _topmost(changed)
    return done


def _topmost(paths: list[str]) -> list[str]:
    found: list[str] = []
    for path in sorted(paths, key=lambda one: one.split("/")):
        if not found or not path.startswith(found[-1] + "/"):
            found.append(path)
    return found


class _Packer:
    def __init__(
        self, scope: CopyScope, before: Mapping[str, Copied], limits: CopyLimits,
        tar: tarfile.TarFile,
    ) -> None:  # fmt: skip
        self.done = Packed()
        self._scope = scope
        self._before = before
        self._limits = limits
        self._tar = tar
        self._bytes = 0

    def add_grant(self, grant: Grant) -> None:
        """Its folder is opened at the canonical path, without following any link on the way."""
        parent, name = os.path.split(grant.path)
        try:
            folder = open_root(parent)
        except OSError as error:
            raise changed_error(grant.path, os.strerror(error.errno or 0)) from None
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if Identity.of(found) != grant.identity:
                raise changed_error(grant.path, "it was replaced")
            self._add(folder, name, grant.path, found, depth=0)
        except FileNotFoundError:
            raise changed_error(grant.path, "it is gone") from None
        finally:
            os.close(folder)

    def add_link(self, path: str, target: str) -> None:
        if path not in self.done.now:
            entry = CopyEntry("link", 0, target)
            if self._count(path, Copied(entry, None)):
                self._tar.addfile(_info(path, entry, 0.0))

    def _add(
        self, parent: int, name: str, path: str, status: os.stat_result, *, depth: int
    ) -> None:
        kind = kind_of(status.st_mode)
        if kind == "dir":
            self._add_folder(parent, name, path, status, depth)
        elif kind == "file":
            self._add_file(parent, name, path, status)
        elif kind == "link":
            entry = CopyEntry("link", 0, os.readlink(name, dir_fd=parent))
            if self._count(path, Copied(entry, Stamp.of(status))):
                self._tar.addfile(_info(path, entry, status.st_mtime))

    def _add_folder(
        self, parent: int, name: str, path: str, status: os.stat_result, depth: int
    ) -> None:
        if depth > MAX_DEPTH:
            raise self._too_much(f"folders are nested deeper than {MAX_DEPTH}")
        try:
            fd = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=parent)
        except OSError:
            self.done.skipped.append(path)
            return
        try:
            entry = CopyEntry("dir", status.st_mode & MODE_BITS)
            if self._count(path, Copied(entry, Stamp.of(status))):
                self._tar.addfile(_info(path, entry, status.st_mtime))
            with os.scandir(fd) as listed:
                names = sorted(one.name for one in listed)
            for one in names:
                self._add_child(fd, one, f"{path}/{one}", depth + 1)
        finally:
            os.close(fd)

    def _add_child(self, folder: int, name: str, path: str, depth: int) -> None:
        if self._scope.begins(path) or name.startswith(STAGING):
            return
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            self._add(folder, name, path, status, depth=depth)
        except FileNotFoundError:
            return  # removed meanwhile

    def _add_file(self, parent: int, name: str, path: str, status: os.stat_result) -> None:
        known = self._before.get(path)
        if known is not None and known.stamp == Stamp.of(status):
            self._measure(known, status.st_size)
            self.done.now[path] = known
            return
        try:
            fd = os.open(name, _OPEN, dir_fd=parent)
        except PermissionError:
            self.done.skipped.append(path)
            return
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return
            self._measure(None, found.st_size)
            content = _Hashed(file, found.st_size)
            entry = CopyEntry("file", found.st_mode & MODE_BITS)
            info = _info(path, entry, found.st_mtime)
            info.size = found.st_size
            self._tar.addfile(info, content)  # type: ignore[arg-type]
            whole = not content.short and Stamp.of(os.fstat(fd)) == Stamp.of(found)
        entry = CopyEntry("file", entry.mode, content.digest())
        self._count(path, Copied(entry, Stamp.of(found) if whole else None))

    def _count(self, path: str, one: Copied) -> bool:
        """Whether it has to be sent."""
        if one.entry.kind != "file":
            self._measure(None, 0)
        self.done.now[path] = one
        known = self._before.get(path)
        return known is None or known.entry != one.entry or known.stamp is None

    def _measure(self, known: Copied | None, size: int) -> None:
        self.done.files += 1
        self._bytes += size
        if self.done.files > self._limits.files:
            raise self._too_much(f"there are more than {self._limits.files} files")
        if self._bytes > self._limits.bytes:
            raise self._too_much(f"there are more than {self._limits.bytes} bytes")

    def _too_much(self, why: str) -> PolicyNotSupported:
        writes = any(grant.access == "write" for grant in self._scope.grants)
        return PolicyNotSupported(
            f"the granted folders cannot be copied to the server: {why}",
            field="fs_write_allow" if writes else "fs_read_allow",
            remedy="grant a smaller folder, hide parts of it with fs_deny, or raise [opensandbox] "
            "copy_max_bytes and copy_max_files",
        )


class _Hashed:
    """Reads exactly `size` bytes of a file, whatever becomes of it; `short`: it had fewer."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size
        self._sum = hashlib.sha256()
        self.short = False

    def read(self, most: int) -> bytes:
        most = min(most, self._left)
        data = self._file.read(most)
        if len(data) < most:
            self.short = True
            data += bytes(most - len(data))
        self._left -= len(data)
        self._sum.update(data)
        return data

    def digest(self) -> str:
        return self._sum.hexdigest()


def _info(path: str, entry: CopyEntry, mtime: float) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path.lstrip("/"))
    info.mode = 0o777 if entry.kind == "link" else entry.mode
    info.mtime = int(mtime)
    info.type = {"dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "file": tarfile.REGTYPE}[
        entry.kind
    ]
    if entry.kind == "link":
        info.linkname = entry.content
    return info
