"""Check the archive that a sandbox made of its writable folders, and list what it holds.

Nothing outside these folders, nothing twice, nothing below a file or a link: otherwise all of it is
refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

import msgspec

from sandboxd.backends.opensandbox.copies.entries import MODE_BITS, CopyEntry
from sandboxd.backends.opensandbox.copies.packing import CopyLimits
from sandboxd.backends.opensandbox.copies.scope import CopyScope
from sandboxd.backends.opensandbox.copies.tar_reader import ArchiveViolation, TarMember, members

_SET_ID = 0o6000
CHUNK = 1 << 20


class ReceivedEntry(msgspec.Struct, frozen=True):
    """`at`, `size`: where the archive has the content of a file."""

    entry: CopyEntry
    mtime: int = 0
    at: int = 0
    size: int = 0


@dataclass(slots=True)
class Archive:
    """`set_id`: files that had a set-id bit; `special`: what is neither file, folder nor link.
    `hidden`: made where the host has something that the sandbox must not see."""

    file: BinaryIO
    found: dict[str, ReceivedEntry] = field(default_factory=dict)
    set_id: list[str] = field(default_factory=list)
    special: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)

    def chunks(self, one: ReceivedEntry) -> list[tuple[int, int]]:
        """(position, length) of the pieces of a file's content."""
        ends = range(0, one.size, CHUNK)
        return [(one.at + start, min(CHUNK, one.size - start)) for start in ends]


def read_archive(file: BinaryIO, scope: CopyScope, limits: CopyLimits) -> Archive:
    archive = Archive(file)
    total = 0
    for member in members(file, limits.files):
        total += member.size
        if total > limits.bytes:
            raise ArchiveViolation(f"more than {limits.bytes} bytes")
        path = _path(member.name)
        if not scope.is_sent_back(path):
            raise ArchiveViolation(f"a path that was not asked for: {path[:200]!r}")
        if path in archive.found:
            raise ArchiveViolation(f"a path twice: {path[:200]!r}")
        if scope.writable_root(path) is None:
            if scope.access(path) == "masked":
                archive.hidden.append(path)
            continue
        if member.kind == "special":
            archive.special.append(path)
            continue
        if len(archive.found) >= limits.files:
            raise ArchiveViolation(f"more than {limits.files} entries")
        archive.found[path] = _arrived(file, member, archive.found)
        if member.mode & _SET_ID and member.kind != "dir":
            archive.set_id.append(path)
    _check_parents(archive.found, scope)
    return archive


def _path(name: str) -> str:
    """Names in the archive are relative to the root of the sandbox."""
    parts = name.removeprefix("./").rstrip("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ArchiveViolation(f"a name that is no plain path: {name[:200]!r}")
    return "/" + "/".join(parts)


def _arrived(
    file: BinaryIO, member: TarMember, found: Mapping[str, ReceivedEntry]
) -> ReceivedEntry:
    mode = member.mode & MODE_BITS
    match member.kind:
        case "dir":
            return ReceivedEntry(CopyEntry("dir", mode), member.mtime)
        case "link":
            if not member.target:
                raise ArchiveViolation("a link that leads nowhere")
            return ReceivedEntry(CopyEntry("link", 0, member.target), member.mtime)
        case "hard":
            first = found.get(_path(member.target))
            if first is None or first.entry.kind != "file":
                raise ArchiveViolation("a hard link to something that is not in the archive")
            return first
    content = _digest(file, member)
    return ReceivedEntry(CopyEntry("file", mode, content), member.mtime, member.at, member.size)


def _digest(file: BinaryIO, member: TarMember) -> str:
    total = hashlib.sha256()
    file.seek(member.at)
    left = member.size
    while left:
        data = file.read(min(CHUNK, left))
        if not data:
            raise ArchiveViolation("a file that is cut off")
        total.update(data)
        left -= len(data)
    return total.hexdigest()


def _check_parents(found: Mapping[str, ReceivedEntry], scope: CopyScope) -> None:
    roots = {grant.path for grant in scope.grants}
    for path in found:
        parent = path.rpartition("/")[0]
        if path in roots:
            continue
        above = found.get(parent)
        if above is None or above.entry.kind != "dir":
            raise ArchiveViolation(f"a path without its folder: {path[:200]!r}")
    for grant in scope.grants:
        if grant.access == "write":
            root = found.get(grant.path)
            if root is None or root.entry.kind != ("dir" if grant.identity.is_dir else "file"):
                raise ArchiveViolation(f"no {grant.path}, or another kind of file there")
