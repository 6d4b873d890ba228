"""The records of ReadDirectoryChangesW, as the system writes them. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HEADER = struct.Struct("<III")  # offset of the next record, action, bytes of the name
ADDED, RENAMED_NEW = 1, 5


def records(data: bytes) -> Iterator[tuple[int, str]]:
    """(action, path with slashes, relative to the watched folder). ValueError for garbage."""
    at = 0
    while True:
        try:
            step, action, size = _HEADER.unpack_from(data, at)
        except struct.error as error:
            raise ValueError(str(error)) from None
        start = at + _HEADER.size
        if start + size > len(data) or size % 2 or (step and step < _HEADER.size):
            raise ValueError("a record ends beyond its buffer")
        name = data[start : start + size].decode("utf-16-le", "surrogatepass")
        yield action, name.replace("\\", "/")
        if not step:
            return
        at += step
