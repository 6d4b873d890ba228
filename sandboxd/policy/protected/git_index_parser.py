"""Reads a git index file as data: versions 2, 3 and 4, split and sparse, SHA-1 and SHA-256.

Git reads parts of an index in more than one way (several threads start at offsets that an
extension gives; a name's length stands in its flags and in its terminator). A file for which
these ways disagree is refused, so that this reader and git see the same entries.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec

from sandboxd.policy.protected.git_bitmap import GitBitmapError, set_bits

MAX_ENTRIES = 2_000_000
# Prefix compression makes a small file expand to long names: the sum of their bytes is limited.
MAX_NAME_BYTES = 512 << 20
MAX_PATH = 4096  # the kernel opens no longer path

REGULAR, EXECUTABLE, SYMLINK, GITLINK, FOLDER = 0o100644, 0o100755, 0o120000, 0o160000, 0o040000

_HEADER = Struct(">4sII")
_WORD = Struct(">I")
_HALF = Struct(">H")
_EXTENSION = Struct(">4sI")
_BLOCK = Struct(">II")
_MODE_AT = 24
_STAT_BYTES = 40
_NAME_MASK, _EXTENDED = 0x0FFF, 0x4000
INTENT_TO_ADD, SKIP_WORKTREE = 0x2000, 0x4000
_REQUIRED = frozenset({b"link", b"sdir"})
_HASHES = {20: "sha1", 32: "sha256"}
LINK_MODE = _WORD.pack(GITLINK)  # as every version of the index writes it
# The link extension of a split index: its name and a size below 16 MiB.
_LINK = re.compile(rb"link\0(?=[\0-\xff]{3})")
SharedIndex = Callable[[bytes], bytes | None]


class GitIndexError(Exception):
    """The file is no index that this reader and git understand alike."""


class IndexEntry(NamedTuple):
    """One path. `flags` are the first flags and, shifted by 16 bits, the extended ones."""

    path: bytes
    mode: int
    stage: int
    oid: bytes
    flags: int


class Index(msgspec.Struct, frozen=True):
    """One file's own entries.

    `shared` is the id of a split index's base, in hexadecimal as in the name `sharedindex.<id>`.
    The entries with an empty path, which come first, then replace the base's entries at
    `replaced`; those at `deleted` are gone. `merge` applies both.
    """

    entries: Sequence[IndexEntry]
    version: int
    sparse: bool
    shared: bytes | None
    checksum: bytes
    deleted: Sequence[int] = ()
    replaced: Sequence[int] = ()


def parse(data: bytes, hash_bytes: int = 20) -> Index:
    """Read one index file. The time is linear in the file's size and the length of its names."""
    if hash_bytes not in _HASHES:
        raise GitIndexError("unknown object format")
    if len(data) < _HEADER.size + hash_bytes:
        raise GitIndexError("too short")
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise GitIndexError("no index of version 2, 3 or 4")
    end = len(data) - hash_bytes
    checksum = _checksum(data, end, hash_bytes)
    if count > MAX_ENTRIES or count * (_STAT_BYTES + hash_bytes + 3) > end - _HEADER.size:
        raise GitIndexError("more entries than the file can hold")
    read = _read_compressed if version == 4 else _read_padded
    entries, starts, at = read(data, count, end, hash_bytes, version)
    extensions = list(_extensions(data, at, end))
    _require_same_offsets(extensions, at, starts)
    shared, deleted, replaced = _link(extensions, hash_bytes)
    sparse = any(name == b"sdir" for name, _ in extensions)
    return Index(entries, version, sparse, shared, checksum, deleted, replaced)


def merge(index: Index, base: Index) -> list[IndexEntry]:
    """The entries of a split index, as git sees them after it has read both files."""
    if index.shared is None or base.shared is not None:
        raise GitIndexError("a split index of more than two files")
    if base.checksum.hex().encode() != index.shared:
        raise GitIndexError("the shared index is another one")
    merged: list[IndexEntry | None] = list(base.entries)
    for position in (*index.deleted, *index.replaced):
        if position >= len(merged):
            raise GitIndexError("a bit outside the shared index")
    for position in index.deleted:
        merged[position] = None
    replacements = index.entries[: len(index.replaced)]
    if len(replacements) < len(index.replaced):
        raise GitIndexError("fewer replacements than bits")
    for position, entry in zip(index.replaced, replacements, strict=True):
        replaced = merged[position]
        if entry.path or replaced is None:
            raise GitIndexError("a replacement that fits no entry")
        merged[position] = entry._replace(path=replaced.path)
    added = index.entries[len(index.replaced) :]
    if not all(entry.path for entry in (*base.entries, *added)):
        raise GitIndexError("an entry without a path")
    return [entry for entry in (*merged, *added) if entry is not None]


def all_entries(data: bytes, hash_bytes: int, shared: SharedIndex) -> Iterable[IndexEntry]:
    """Of an index and, if it is split, of its base: `shared` returns the bytes of that file."""
    index = parse(data, hash_bytes)
    if index.shared is None:
        return index.entries
    base = shared(index.shared)
    if base is None:
        raise GitIndexError("its shared index is missing")
    return merge(index, parse(base, hash_bytes))


def gitlinks(data: bytes, hash_bytes: int, shared: SharedIndex) -> list[bytes]:
    """The paths where git status enters another repository; raises `GitIndexError`."""
    return [e.path for e in all_entries(data, hash_bytes, shared) if is_gitlink(e.mode)]


def may_be_split(data: bytes) -> bool:
    return any(
        match.end() + 3 + int.from_bytes(data[match.end() : match.end() + 3], "big") <= len(data)
        for match in _LINK.finditer(data)
    )


def is_gitlink(mode: int) -> bool:
    """Git looks at the type only, so 160755 is one too."""
    return stat.S_IFMT(mode) == GITLINK


def _checksum(data: bytes, end: int, hash_bytes: int) -> bytes:
    """Git does not compare it. A program that writes an index gets it right or leaves zeros."""
    found = data[end:]
    if any(found):
        view = memoryview(data)[:end]
        if hashlib.new(_HASHES[hash_bytes], view, usedforsecurity=False).digest() != found:
            raise GitIndexError("wrong checksum")
    return found


_Read = tuple[list[IndexEntry], list[int], int]


def _read_padded(data: bytes, count: int, end: int, hash_bytes: int, version: int) -> _Read:
    """Versions 2 and 3: whole names, padded with one to eight zeros to a multiple of eight."""
    entries: list[IndexEntry] = []
    starts: list[int] = []
    at = _HEADER.size
    flags_at = _STAT_BYTES + hash_bytes
    shortest = flags_at + 3
    word, half, find = _WORD.unpack_from, _HALF.unpack_from, data.find
    for _ in range(count):
        if at + shortest > end:
            raise GitIndexError("cut off")
        flags = half(data, at + flags_at)[0]
        name_at = at + flags_at + 2
        if flags & _EXTENDED:
            flags |= _extended_flags(data, name_at, version)
            name_at += 2
        stop = find(b"\0", name_at, min(end, name_at + MAX_PATH))
        path = _name(data[name_at:stop], flags, stop)
        following = at + ((name_at - at + len(path) + 8) & ~7)
        if following > end or any(data[stop:following]):
            raise GitIndexError("wrong padding")
        oid = data[at + _STAT_BYTES : at + flags_at]
        mode = word(data, at + _MODE_AT)[0]
        entries.append(IndexEntry(path, mode, flags >> 12 & 3, oid, flags))
        starts.append(at)
        at = following
    return entries, starts, at


def _read_compressed(data: bytes, count: int, end: int, hash_bytes: int, version: int) -> _Read:
    """Version 4: how much of the previous name to drop, and what to append.

    A start is negative where the name builds upon the previous one: no thread may start there.
    """
    entries: list[IndexEntry] = []
    starts: list[int] = []
    at = _HEADER.size
    flags_at = _STAT_BYTES + hash_bytes
    shortest = flags_at + 3
    word, half, find = _WORD.unpack_from, _HALF.unpack_from, data.find
    path = b""
    room = MAX_NAME_BYTES
    for _ in range(count):
        if at + shortest > end:
            raise GitIndexError("cut off")
        flags = half(data, at + flags_at)[0]
        name_at = at + flags_at + 2
        if flags & _EXTENDED:
            flags |= _extended_flags(data, name_at, version)
            name_at += 2
        dropped = data[name_at]
        name_at += 1
        if dropped & 0x80:
            dropped, name_at = _varint(data, name_at - 1, end)
        kept = len(path) - dropped
        if kept < 0:
            raise GitIndexError("drops more than the previous name has")
        stop = find(b"\0", name_at, min(end, name_at + MAX_PATH))
        path = _name(path[:kept] + data[name_at:stop], flags, stop)
        room -= len(path)
        if room < 0:
            raise GitIndexError("names too long in sum")
        oid = data[at + _STAT_BYTES : at + flags_at]
        mode = word(data, at + _MODE_AT)[0]
        entries.append(IndexEntry(path, mode, flags >> 12 & 3, oid, flags))
        starts.append(-at if kept else at)
        at = stop + 1
    return entries, starts, at


def _extended_flags(data: bytes, at: int, version: int) -> int:
    if version == 2:
        raise GitIndexError("extended flags in version 2")
    extended: int = _HALF.unpack_from(data, at)[0]
    if extended & ~(INTENT_TO_ADD | SKIP_WORKTREE):
        raise GitIndexError("unknown flags")
    return extended << 16


def _name(path: bytes, flags: int, stop: int) -> bytes:
    """Git believes the length in the flags; most of its code reads up to the terminator."""
    if stop < 0 or len(path) > MAX_PATH:
        raise GitIndexError("a name without an end")
    if flags & _NAME_MASK != min(len(path), _NAME_MASK):
        raise GitIndexError("two lengths for one name")
    return path


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Git's variable length integer (not LEB128: each further byte adds one)."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        if at >= end or value > MAX_PATH:
            raise GitIndexError("a number without an end")
        value = (value + 1 << 7) + (data[at] & 0x7F)
    return value, at + 1


def _extensions(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, bytes]]:
    """Names with a lower case first letter must be understood; git skips the others."""
    seen: set[bytes] = set()
    while at < end:
        if at + _EXTENSION.size > end:
            raise GitIndexError("bytes after the extensions")
        name, size = _EXTENSION.unpack_from(data, at)
        at += _EXTENSION.size
        if at + size > end:
            raise GitIndexError("an extension is cut off")
        if not 0x41 <= name[0] <= 0x5A and name not in _REQUIRED:
            raise GitIndexError("an unknown extension that must be understood")
        if name in seen:
            raise GitIndexError("an extension stands twice")
        seen.add(name)
        yield name, data[at : at + size]
        at += size


def _require_same_offsets(
    extensions: Sequence[tuple[bytes, bytes]], end_of_entries: int, starts: Sequence[int]
) -> None:
    """With several threads git reads entries and extensions where these two tables say."""
    tables = dict(extensions)
    last = tables.get(b"EOIE", end_of_entries.to_bytes(4, "big"))
    if int.from_bytes(last[:4], "big") != end_of_entries:
        raise GitIndexError("another end of the entries")
    if (blocks := tables.get(b"IEOT")) is None:
        return
    if len(blocks) < 4 or (len(blocks) - 4) % _BLOCK.size or blocks[:4] != b"\0\0\0\1":
        raise GitIndexError("an unknown table of offsets")
    position = 0
    for offset, length in _BLOCK.iter_unpack(blocks[4:]):
        if position >= len(starts) or length == 0 or starts[position] != offset:
            raise GitIndexError("another offset of an entry")
        position += length
    if position != len(starts):
        raise GitIndexError("another number of entries")


def _link(
    extensions: Sequence[tuple[bytes, bytes]], hash_bytes: int
) -> tuple[bytes | None, Sequence[int], Sequence[int]]:
    link = dict(extensions).get(b"link")
    if link is None:
        return None, (), ()
    if len(link) < hash_bytes:
        raise GitIndexError("a link is cut off")
    base = link[:hash_bytes]
    if len(link) == hash_bytes:
        return (base.hex().encode() if any(base) else None), (), ()
    try:
        deleted, at = set_bits(link, hash_bytes, MAX_ENTRIES)
        replaced, at = set_bits(link, at, MAX_ENTRIES)
    except GitBitmapError as error:
        raise GitIndexError(str(error)) from None
    if at != len(link):
        raise GitIndexError("bytes after a link")
    if not any(base):
        raise GitIndexError("a link to no file")
    return base.hex().encode(), deleted, replaced
