"""Read a tar archive that a sandbox made. Its content is hostile, so every number is bounded.

Understood are ustar, GNU's long names and pax's `path`, `linkpath` and `size`. Everything else is a
violation: then nothing of the archive is used. An archive has to have its end mark: what is missing
in it is taken for removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

BLOCK = 512
NAME_MAX = 4096
PAX_MAX = 64 << 10
_FILE, _HARD_LINK, _LINK, _FOLDER = b"0\0", b"1", b"2", b"5"
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL = b"L", b"K", b"x", b"g"
_FIFO_OR_DEVICE = b"346"


class ArchiveViolation(Exception):
    """What came is no archive that can be used."""


class TarMember(msgspec.Struct, frozen=True):
    """`kind`: file, dir, link, hard (a hard link to `target`), or special. `at`: its content."""

    name: str
    kind: str
    mode: int
    mtime: int
    size: int = 0
    at: int = 0
    target: str = ""


def members(file: BinaryIO, most: int) -> Iterator[TarMember]:
    """In their order. ArchiveViolation, also for more than `most`, and for a missing end mark."""
    end = os.fstat(file.fileno()).st_size
    at, count = 0, 0
    given: dict[str, str] = {}
    while True:
        header = _read(file, at, BLOCK)
        at += BLOCK
        if not any(header):
            _check_end(file, at, end)
            return
        count += 1
        if count > 3 * most:  # with the extra headers of long names
            raise ArchiveViolation(f"more than {most} entries")
        kind, size = _checked(header), _number(header[124:136])
        if kind in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL):
            data = _read(file, at, _bounded(size, PAX_MAX))
            if kind in (_LONG_NAME, _LONG_LINK):
                given["path" if kind == _LONG_NAME else "linkpath"] = _text(data)
            elif kind == _PAX:
                given |= _pax(data)
        else:
            if "size" in given:
                size = _decimal(given["size"])
            member = _member(header, kind, size, at, given)
            given = {}
            size = member.size
            if at + size > end:
                raise ArchiveViolation("a file that is cut off")
            yield member
        at += -(-size // BLOCK) * BLOCK


def _member(header: bytes, kind: bytes, size: int, at: int, given: dict[str, str]) -> TarMember:
    name, target = given.get("path") or _name(header), given.get("linkpath")
    target = _text(header[157:257]) if target is None else target
    if len(os.fsencode(name)) > NAME_MAX or len(os.fsencode(target)) > NAME_MAX:
        raise ArchiveViolation("a name that is too long")
    mode, mtime = _number(header[100:108]), _number(header[136:148])
    if kind in _FILE:
        return TarMember(name, "file", mode, mtime, size, at)
    for letter, word in ((_FOLDER, "dir"), (_LINK, "link"), (_HARD_LINK, "hard")):
        if kind == letter:
            return TarMember(name, word, mode, mtime, target=target)
    if kind in _FIFO_OR_DEVICE:
        return TarMember(name, "special", mode, mtime)
    raise ArchiveViolation(f"an entry of the type {kind!r}")


def _name(header: bytes) -> str:
    name, magic, prefix = _text(header[:100]), header[257:265], _text(header[345:500])
    return f"{prefix}/{name}" if magic == b"ustar\x0000" and prefix else name


def _checked(header: bytes) -> bytes:
    """The type of the entry, after the checksum was compared."""
    total = sum(header[:148]) + 8 * ord(" ") + sum(header[156:])
    if _number(header[148:156]) != total:
        raise ArchiveViolation("a header with a wrong checksum")
    return header[156:157]


def _pax(data: bytes) -> dict[str, str]:
    """Records of the form `LENGTH KEY=VALUE\\n`."""
    found: dict[str, str] = {}
    while data.strip(b"\0"):
        digits, space, _ = data[:12].partition(b" ")
        length = _decimal(digits.decode("ascii", "replace"))
        record = data[len(digits) + 1 : length]
        if not space or length > len(data) or not record.endswith(b"\n") or b"=" not in record:
            raise ArchiveViolation("a broken pax header")
        key, _, value = record[:-1].partition(b"=")
        if key in (b"path", b"linkpath", b"size"):
            found[key.decode()] = _text(value)
        elif key.startswith((b"GNU.sparse", b"hdrcharset")):
            raise ArchiveViolation(f"a pax header {key[:40]!r}")
        data = data[length:]
    return found


def _number(field: bytes) -> int:
    """Octal digits, or a binary number where the first bit is set."""
    if field[0] & 0x80:
        if field[0] != 0x80:
            raise ArchiveViolation("a negative or too large number")
        return _bounded(int.from_bytes(field[1:], "big"), 1 << 62)
    digits = field.strip(b" \0")
    if not all(digit in b"01234567" for digit in digits):
        raise ArchiveViolation("a number that is not octal")
    return int(digits or b"0", 8)


def _decimal(digits: str) -> int:
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise ArchiveViolation("a number that is none")
    return int(digits)


def _bounded(value: int, most: int) -> int:
    if value > most:
        raise ArchiveViolation("a number or a name that is too large")
    return value


def _text(data: bytes) -> str:
    return os.fsdecode(data.split(b"\0", 1)[0])


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    file.seek(at)
    data = file.read(size)
    if len(data) != size:
        raise ArchiveViolation("an archive without its end")
    return data


def _check_end(file: BinaryIO, at: int, end: int) -> None:
    """A second block of zeros, and nothing but zeros after it."""
    if at + BLOCK > end:
        raise ArchiveViolation("an archive without its end")
    file.seek(at)
    while data := file.read(1 << 16):
        if any(data):
            raise ArchiveViolation("something after the end of the archive")
