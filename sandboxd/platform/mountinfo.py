"""The lines of /proc/self/mountinfo. Pure."""

from __future__ import annotations

import re

import msgspec

_ESCAPE = re.compile(r"\\([0-7]{3})")


class MountEntry(msgspec.Struct, frozen=True):
    """`root`: the part of the file system that is mounted at `point`. `options`: of the file system
    itself."""

    root: str
    point: str
    kind: str
    options: tuple[str, ...]


def parse(mountinfo: str) -> list[MountEntry]:
    found = []
    for line in mountinfo.split("\n"):  # the kernel escapes no other line end in a path
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4:
            kind, _, rest = after.partition(" ")
            root, point = (_unescape(field) for field in fields[3:5])
            found.append(MountEntry(root, point, kind, tuple(rest.rpartition(" ")[2].split(","))))
    return found


def _unescape(field: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field) if "\\" in field else field
